// Elements of the page. Text from the cluster is only ever inserted as text.
import { h, render } from "./preact.js";
import htm from "./htm.js";

export { render };
export * from "./hooks.js";
export const html = htm.bind(h);

// Returns the name of a plugin that may continue in another line before each of its words.
export const divisible = (name) => name.split(/(?<=[a-z])(?=[A-Z])/).map((word, place) => (place ? [html`<wbr />`, word] : word));
