// What every part of the page is written with. Text from the cluster is only ever put in as text.
import { h, render } from "./preact.js";
import htm from "./htm.js";

export { render };
export * from "./hooks.js";
export const html = htm.bind(h);
