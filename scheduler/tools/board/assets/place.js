// The address after the #: a path, and parameters that can be linked to.
import { useEffect, useReducer } from "./hooks.js";

const listeners = new Set();
const moved = () => listeners.forEach((listener) => listener());
addEventListener("hashchange", moved);

function here() {
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  return { path, params: new URLSearchParams(query) };
}

export function usePlace() {
  const [, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    listeners.add(again);
    return () => listeners.delete(again);
  }, []);
  return here();
}

// Returns the value of a parameter, and a function that changes it without a new entry in the history.
export function useParam(name) {
  const { params } = usePlace();
  return [params.get(name) ?? "", (value) => setParams({ [name]: value })];
}

export function setParams(changed) {
  const { path, params } = here();
  for (const [name, value] of Object.entries(changed)) value ? params.set(name, value) : params.delete(name);
  const query = params.toString();
  history.replaceState(null, "", `#${path}${query && `?${query}`}`);
  moved();
}
