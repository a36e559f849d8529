// Elements of the page. Text from the cluster is only ever inserted as text.
import { h, render } from "./preact.js";
import htm from "./htm.js";

export { render };
export * from "./hooks.js";
export const html = htm.bind(h);
