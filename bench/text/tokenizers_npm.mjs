// The reference implementation's time for the same text, on one thread: npm install tokenizers@0.23.2
//
//   bench/beside.py --field encode_ms --rounds 7 \
//       --ours "build/bench/tokenizer_bench --tokenizer T --text F --samples 1 --json {json}" \
//       --rival "node bench/text/tokenizers_npm.mjs NODE_MODULES T F whole"
//
// As in tokenizer_bench: the text once to warm its cache of words, then once timed. The binding has no way to ask for
// ids alone; offsets and tokens are made too, but nothing of them is copied to JavaScript.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
process.env.TOKENIZERS_PARALLELISM = "false";
process.env.RAYON_NUM_THREADS = "1";
const [modules, tokenizerFile, textFile, way] = process.argv.slice(2);
const { Tokenizer } = createRequire(modules + "/")("tokenizers");
const tokenizer = Tokenizer.fromFile(tokenizerFile);
const text = readFileSync(textFile, "utf8");
const lines = text.split(/(?<=\n)/);
const plain = { addSpecialTokens: false };
const encode = async () => (way === "lines" ? await tokenizer.encodeBatch(lines, plain) : [await tokenizer.encode(text, null, plain)]);
await encode();
const begin = process.hrtime.bigint();
const encodings = await encode();
const milliseconds = Number(process.hrtime.bigint() - begin) / 1e6;
const ids = encodings.reduce((sum, each) => sum + each.getLength(), 0);
console.log(JSON.stringify({ way, ids, encode_ms: milliseconds }));
