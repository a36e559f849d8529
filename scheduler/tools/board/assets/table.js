// A table that shows some of its rows at a time.
import { html, useState } from "./dom.js";
import { count } from "./format.js";

export function Paged({ rows, size = 50, caption, head, row }) {
  const [start, setStart] = useState(0);
  const from = Math.min(start, Math.max(0, Math.floor((rows.length - 1) / size) * size));
  const shown = rows.slice(from, from + size);
  return html`<div class="scroll"><table><caption>${caption}</caption><thead><tr>${head}</tr></thead>
      <tbody>${shown.map(row)}</tbody></table></div>
    ${rows.length > size && html`<p class="pages">
      <button disabled=${from === 0} onClick=${() => setStart(from - size)}>Previous</button>
      <span>${count(from + 1)} to ${count(from + shown.length)} of ${count(rows.length)}</span>
      <button disabled=${from + size >= rows.length} onClick=${() => setStart(from + size)}>Next</button></p>`}`;
}

// n: a column of numbers; fill: a column that takes the rest of the width; wide: a column that a narrow screen leaves out.
export const Column = ({ children, n, fill, wide }) => html`<th scope="col" class=${[n && "n", fill && "fill", wide && "wide"].filter(Boolean).join(" ")}>${children}</th>`;

export function Sorted({ children, name, by, setBy, n }) {
  const is = by.name === name;
  const turned = () => setBy({ name, down: is ? !by.down : true });
  return html`<th scope="col" class=${n ? "n" : ""} aria-sort=${is ? (by.down ? "descending" : "ascending") : undefined}>
    <button class="plain" onClick=${turned}>${children}${is ? (by.down ? " ↓" : " ↑") : ""}</button></th>`;
}
