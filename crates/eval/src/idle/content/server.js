// A small service that holds records in memory and answers with those that are asked for.
// node server.js PORT RECORDS SEED
"use strict";
const http = require("http");
const [port, count, seed] = process.argv.slice(2).map(Number);

let state = seed >>> 0 || 1;
function below(bound) {
  // xorshift32
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % bound;
}
const syllables = "ka lo mi ren tas ve dor un pel si gra fo".split(" ");
const word = () => syllables[below(12)] + syllables[below(12)] + syllables[below(12)];
const words = (n) => Array.from({ length: n }, word).join(" ");

// As JSON text, parsed: what a service gets from its database.
function record(id) {
  return JSON.stringify({
    id,
    name: words(2),
    address: { street: words(2), city: word(), zip: 10000 + below(90000) },
    tags: Array.from({ length: 6 }, word),
    prices: Array.from({ length: 12 }, () => below(100000) / 100 + 0.5),
    reviews: Array.from({ length: 3 }, () => ({ stars: 1 + below(5), author: words(2), text: words(24) })),
  });
}

const records = new Map();
for (let id = 0; id < count; id++) records.set(id, JSON.parse(record(id)));

const server = http.createServer((request, response) => {
  const keys = new URL(request.url, "http://localhost").searchParams.get("keys") || "";
  const found = keys.split(",").map((key) => records.get(Number(key)));
  if (found.includes(undefined)) {
    response.writeHead(404, { "Content-Length": 0 });
    response.end();
    return;
  }
  const total = found.reduce((sum, one) => sum + one.prices.reduce((a, b) => a + b, 0), 0);
  const body = JSON.stringify({ total, found });
  response.writeHead(200, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) });
  response.end(body);
});
// Its clients keep their connections while it is idle.
server.keepAliveTimeout = 0;
server.listen(port, "127.0.0.1");
