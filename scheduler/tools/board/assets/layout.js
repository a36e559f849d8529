// The place of each node's tile on the map: zone by zone, as large as fits.

const LARGEST = 44;
const SMALLEST = 4;
const HEADING = 20;
const BETWEEN = 10;

// Returns {size, height, zones: [{name, y, columns, nodes: [tile]}]} for a width in pixels.
export function laidOut(tiles, width, height) {
  const byZone = new Map();
  for (const tile of tiles) {
    if (!byZone.has(tile[1])) byZone.set(tile[1], []);
    byZone.get(tile[1]).push(tile);
  }
  const zones = [...byZone].sort(([one], [other]) => one.localeCompare(other, undefined, { numeric: true }));
  for (const [, nodes] of zones) nodes.sort((one, other) => compare(one[0], other[0]));
  let size = LARGEST;
  while (size > SMALLEST && total(zones, size, width) > height) size -= 1;
  const columns = Math.max(1, Math.floor(width / size));
  let y = 0;
  const placed = zones.map(([name, nodes]) => {
    const zone = { name, y: y + HEADING, columns, nodes };
    y += HEADING + Math.ceil(nodes.length / columns) * size + BETWEEN;
    return zone;
  });
  return { size, zones: placed, height: Math.max(y, HEADING) };
}

function total(zones, size, width) {
  const columns = Math.max(1, Math.floor(width / size));
  return zones.reduce((sum, [, nodes]) => sum + HEADING + BETWEEN + Math.ceil(nodes.length / columns) * size, 0);
}

const order = new Intl.Collator(undefined, { numeric: true });
export const compare = (one, other) => order.compare(one, other);

// Returns the tile at a point, or null.
export function tileAt(layout, x, y) {
  const zone = layout.zones.find((each) => y >= each.y && y < each.y + Math.ceil(each.nodes.length / each.columns) * layout.size);
  const column = Math.floor(x / layout.size);
  if (!zone || column < 0 || column >= zone.columns) return null;
  return zone.nodes[Math.floor((y - zone.y) / layout.size) * zone.columns + column] ?? null;
}

// Returns where a node's tile is: {zone, place, x, y}, or null.
export function placeOf(layout, name) {
  for (const zone of layout.zones) {
    const place = zone.nodes.findIndex((tile) => tile[0] === name);
    if (place >= 0) {
      return {
        zone,
        place,
        x: (place % zone.columns) * layout.size,
        y: zone.y + Math.floor(place / zone.columns) * layout.size,
      };
    }
  }
  return null;
}

// Returns the name of the next node in the direction of an arrow key.
export function neighbour(layout, name, key) {
  const at = name ? placeOf(layout, name) : null;
  if (!at) return layout.zones[0]?.nodes[0]?.[0] ?? null;
  const { zone, place } = at;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -zone.columns, ArrowDown: zone.columns }[key];
  const wanted = zone.nodes[place + step];
  if (wanted) return wanted[0];
  const others = layout.zones[layout.zones.indexOf(zone) + (step > 0 ? 1 : -1)];
  if (!others) return name;
  return (step > 0 ? others.nodes[0] : others.nodes[others.nodes.length - 1])[0];
}
