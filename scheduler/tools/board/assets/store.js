// The data received so far, and the listeners that draw it.
import { useEffect, useReducer, useState } from "./hooks.js";

const DECISIONS = 200;
const SAMPLES = 300;
const AGAIN_MS = 2000;

export const store = {
  link: "connecting", // "live" | "connecting" | "refused"
  kind: "",
  version: "",
  resources: [],
  nodes: new Map(), // name -> [name, zone, flags, why it is paused, allocatable, requested, pods]
  waiting: { groups: [] },
  decisions: [], // newest first
  samples: [],
  configuration: null,
};

// Returns the time of the scheduler in milliseconds, from its last sample: in a recording it is the recorded time.
export const now = () => (store.samples.length ? store.samples[store.samples.length - 1].at * 1000 : Date.now());

const listeners = new Map(); // topic -> Set of functions
const due = new Set();
let isDue = false;

export function listen(topic, listener) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic).add(listener);
  return () => listeners.get(topic).delete(listener);
}

// However many messages arrive, the page is drawn at most once per frame. A hidden page has no frames.
function changed(topic) {
  due.add(topic);
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    const topics = [...due];
    due.clear();
    for (const each of topics) for (const listener of listeners.get(each) ?? []) listener();
  });
}

export function useTopic(...topics) {
  const [, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    const ends = topics.map((topic) => listen(topic, again));
    return () => ends.forEach((end) => end());
  }, topics);
  return store;
}

const told = {
  hello({ kind, version }) {
    Object.assign(store, { kind, version, link: "live", waiting: { groups: [] }, decisions: [], samples: [], configuration: null });
    for (const topic of ["link", "waiting", "decisions", "rates", "configuration"]) changed(topic);
  },
  nodes({ resources, all, changed: tiles, gone }) {
    if (all) {
      store.nodes.clear();
      store.resources = resources;
    }
    for (const tile of tiles) store.nodes.set(tile[0], tile);
    for (const name of gone) store.nodes.delete(name);
    changed("nodes");
  },
  waiting(waiting) {
    store.waiting = waiting;
    changed("waiting");
  },
  decisions(fresh) {
    const pods = new Set(fresh.map((each) => each.pod));
    for (const listener of listeners.get("fresh") ?? []) listener(pods);
    store.decisions = [...fresh.reverse(), ...store.decisions].slice(0, DECISIONS);
    changed("decisions");
  },
  rates(samples) {
    store.samples = [...store.samples, ...samples].slice(-SAMPLES);
    changed("rates");
  },
  configuration(configuration) {
    store.configuration = configuration;
    changed("configuration");
  },
};

function linked(state) {
  store.link = state;
  changed("link");
}

export function connect() {
  const source = new EventSource("/board/data/stream");
  for (const [name, take] of Object.entries(told)) {
    source.addEventListener(name, (event) => take(JSON.parse(event.data)));
  }
  source.onerror = async () => {
    linked("connecting");
    if (source.readyState !== EventSource.CLOSED) return; // the browser reconnects by itself
    const answer = await fetch("/board/data/pods?find=", { method: "HEAD" }).catch(() => null);
    if (answer && (answer.status === 401 || answer.status === 403)) return linked("refused");
    setTimeout(connect, AGAIN_MS);
  };
}

// Requests one object; an object that does not exist is {problem}.
export async function ask(path) {
  try {
    const answer = await fetch(`/board/data/${path}`);
    if (answer.ok || answer.status === 404) return await answer.json();
    return { problem: `the scheduler answers ${answer.status}` };
  } catch {
    return { problem: "the scheduler does not answer" };
  }
}

// Returns the answer to a request, null until there is one; it is requested again after each interval, if there is one.
export function useAnswer(path, interval) {
  const [answer, setAnswer] = useState(null);
  useEffect(() => {
    if (path === null) return setAnswer(null);
    let isHere = true;
    const look = async () => {
      const found = await ask(path);
      if (isHere) setAnswer(found);
    };
    setAnswer(null);
    look();
    const timer = interval && setInterval(look, interval);
    return () => {
      isHere = false;
      clearInterval(timer);
    };
  }, [path]);
  return answer;
}
