// The parts of the llama engine that need no engine: text, thought, stop strings, seeds, sizes, settings, templates.
import fc from 'fast-check';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { LeaseholdError } from '../../protocol/index.js';
import { renderMessages, type TemplateContext } from '../../workers/llama/chat-template.js';
import { contextCurve, paddedTokens } from '../../workers/llama/context-curve.js';
import { wantedBytesIn } from '../../workers/llama/refused-bytes.js';
import { cutLongRuns } from '../../workers/llama/long-runs.js';
import { renderTemplate } from '../../workers/llama/render-template.js';
import { NativeLog } from '../../workers/llama/native-log.js';
import { readSettings } from '../../workers/llama/options.js';
import { Output } from '../../workers/llama/output.js';
import { commonPrefix, pieceTokens, piecesOf, reusableTokens } from '../../workers/llama/prefill.js';
import { foldSeed, samplerOptions, stopStrings } from '../../workers/llama/sampling.js';
import { backendsFor } from '../../workers/llama/start.js';
import { StopStrings } from '../../workers/llama/stop-strings.js';
import { endsInThought } from '../../workers/llama/thought.js';
import { TokenText } from '../../workers/llama/token-text.js';
import { chatTemplate } from '../fixtures/gguf-models.js';
import { specOf } from '../fixtures/llama-engine.js';

/** A vocabulary of bytes, 0 to 255: the hardest case, since every character of more than one byte is cut. */
const bytesToText = (ids: readonly number[]): string => Buffer.from(ids).toString('utf8');

const codeOf = (run: () => unknown): string => {
  try {
    run();
  } catch (error) {
    if (error instanceof LeaseholdError) return error.code;
    throw error;
  }
  return 'none';
};

t.test('text comes out whole', async (t) => {
  t.test('any text of any characters is what its bytes say, and no piece ends inside a character', async (t) => {
    fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => {
      const whole = Buffer.from(text, 'utf8').toString('utf8');
      const stream = new TokenText(bytesToText, []);
      const pieces = [...Buffer.from(text, 'utf8')].map((byte) => stream.push(byte));
      if (!whole.includes('\ufffd') && pieces.some((piece) => piece.includes('\ufffd'))) return false;
      return pieces.join('') + stream.flush() === whole;
    }));
    t.pass();
  });
  t.test('bytes that are no text are replaced, hold nothing up, and spoil nothing that follows', async (t) => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 12 }), fc.string({ unit: 'grapheme', minLength: 1 }), (junk, text) => {
      const stream = new TokenText(bytesToText, []);
      let out = '';
      for (const byte of junk) out += stream.push(byte);
      // A newline ends whatever was incomplete.
      for (const byte of Buffer.from(`\n${text}`, 'utf8')) out += stream.push(byte);
      return (out + stream.flush()).endsWith(`\n${text}`);
    }), { numRuns: 500 });
    const replaced = new TokenText(bytesToText, []);
    t.equal([...Buffer.from('\ufffd👍\ufffd\ufffd漢')].map((byte) => replaced.push(byte)).join('') + replaced.flush(), '\ufffd👍\ufffd\ufffd漢', 'a replacement character that was said is one, not three');
    const stream = new TokenText(bytesToText, []);
    const pieces = Array.from({ length: 10 }, () => stream.push(0x80));
    t.same(pieces.map((piece) => piece.length), [0, 0, 0, 1, 1, 1, 1, 1, 1, 1], 'at most three tokens wait');
    t.equal(stream.flush().length, 3, 'and come out at the end');
  });
  t.test('the tokenizer sees the tokens before the text', async (t) => {
    const seen: (readonly number[])[] = [];
    const stream = new TokenText((ids, before) => { seen.push(before); return bytesToText(ids); }, [1, 2, 3, 4, 5, 6]);
    stream.push(0x41);
    stream.push(0x42);
    t.same(seen, [[3, 4, 5, 6], [4, 5, 6, 0x41]]);
  });
});

t.test('stop strings', async (t) => {
  const cutAt = (text: string, stops: readonly string[]): string => {
    for (let end = 0; end <= text.length; end++) {
      const starts = stops.map((stop) => end - stop.length).filter((start, index) => start >= 0 && text.slice(start, end) === stops[index]);
      if (starts.length > 0) return text.slice(0, Math.min(...starts));
    }
    return text;
  };
  t.test('end the text at the one that is complete first, wherever the pieces are cut', async (t) => {
    // Few letters, so that beginnings, overlaps and near misses are common.
    const word = (lengths: fc.StringConstraints): fc.Arbitrary<string> => fc.string({ unit: fc.constantFrom('a', 'b', '\n'), ...lengths });
    fc.assert(fc.property(fc.array(word({ maxLength: 4 }), { maxLength: 20 }), fc.array(word({ minLength: 1, maxLength: 4 }), { maxLength: 4 }), (pieces, stops) => {
      const watch = new StopStrings(stops);
      let out = '';
      for (const piece of pieces) {
        const result = watch.push(piece);
        out += result.text;
        if (result.stopped) return out === cutAt(pieces.join(''), stops);
      }
      const text = pieces.join('');
      return cutAt(text, stops) === text && out + watch.flush() === text;
    }), { numRuns: 2_000 });
    t.pass();
  });
  t.test('hold back only what may still become one', async (t) => {
    const watch = new StopStrings(['</s>', 'User:']);
    t.same(watch.push('Hi <'), { text: 'Hi ', stopped: false });
    t.same(watch.push('b> Us'), { text: '<b> ', stopped: false });
    t.same(watch.push('e'), { text: '', stopped: false });
    t.same(watch.push('r: x'), { text: '', stopped: true });
  });
  t.test('an empty one is refused', async (t) => {
    t.equal(codeOf(() => stopStrings({ maxTokens: 1, temperature: 0, stop: ['a', ''] })), 'input_invalid');
  });
});

t.test('thought and answer', async (t) => {
  const [open, close] = [1, 2];
  // Ids from 65 on are letters; 10 is a line feed; the tags have texts of their own.
  const detokenize = (ids: readonly number[]): string => ids.map((id) => (id === open ? '<think>' : id === close ? '</think>' : String.fromCharCode(id))).join('');
  const say = (ids: readonly number[], opensInThought: boolean, stops: readonly string[] = []): { thought: string; answer: string; thoughtTokens: number; stopped: boolean } => {
    const output = new Output({ detokenize, tags: { openId: open, closeId: close }, opensInThought, stops, before: [] });
    const pieces = ids.map((id, index) => output.push(id, index === ids.length - 1));
    const textOf = (thought: boolean): string => pieces.filter((piece) => piece.thought === thought).map(({ text }) => text).join('');
    return { thought: textOf(true), answer: textOf(false), thoughtTokens: output.thoughtTokens, stopped: pieces.some(({ stopped }) => stopped) };
  };
  const [a, b, c, d, lineFeed] = [65, 66, 67, 68, 10];
  t.test('B127 B128: borders anywhere, nothing lost, no tag in the text', async (t) => {
    t.match(say([open, a], false), { thought: 'A', answer: '', thoughtTokens: 1 });
    t.match(say([a, close, b], true), { thought: 'A', answer: 'B', thoughtTokens: 1 });
    t.match(say([open, a, close, b], false), { thought: 'A', answer: 'B', thoughtTokens: 1 });
    t.match(say([open, close, b], false), { thought: '', answer: 'B', thoughtTokens: 0 });
    t.match(say([lineFeed, open, a, close, b], false), { thought: 'A', answer: '\nB', thoughtTokens: 1 });
    t.match(say([open, a, close, close, b], false), { thought: 'A', answer: 'B', thoughtTokens: 1 }, 'closing tags that repeat are dropped');
  });
  t.test('B134 B136 B137: without a tag at the start nothing is thought, and after the first close nothing is parsed', async (t) => {
    t.match(say([a], false), { thought: '', answer: 'A', thoughtTokens: 0 });
    t.match(say([a, open, b, close, c], false), { thought: '', answer: 'A<think>B</think>C', thoughtTokens: 0 });
    t.match(say([open, a, open, b, close, c, close, d], false), { thought: 'A<think>B', answer: 'C</think>D', thoughtTokens: 3 });
    t.match(say([open, a, close, b, open, c, close, d], false), { thought: 'A', answer: 'B<think>C</think>D', thoughtTokens: 1 });
  });
  t.test('B133: a thought that never closes is no answer', async (t) => {
    t.match(say([open, a, b, c], false), { thought: 'ABC', answer: '', thoughtTokens: 3 });
    t.match(say([a, b, c], true), { thought: 'ABC', answer: '', thoughtTokens: 3 });
  });
  t.test('a stop string in a thought does not cost the answer', async (t) => {
    t.match(say([open, a, lineFeed, lineFeed, b, close, c, lineFeed, lineFeed, d], false, ['\n\n']), { thought: 'A\n\nB', answer: 'C', stopped: true });
  });
  t.test('every id is thought, answer or border: R283 for any ids', async (t) => {
    const ids = fc.array(fc.constantFrom(open, close, a, b, lineFeed), { minLength: 1 });
    fc.assert(fc.property(ids, fc.boolean(), (sequence, opened) => {
      const { thought, answer, thoughtTokens } = say(sequence, opened);
      const borders = sequence.length - thoughtTokens - answer.replaceAll('</think>', '2').replaceAll('<think>', '1').length;
      return borders >= 0 && (thought === '' || opened || sequence.includes(open));
    }));
    t.pass();
  });
  t.test('B131 B203: whether the prompt left a thought open is read from the prompt, not from a setting', async (t) => {
    const tags = { openId: open, closeId: close };
    const special = (id: number): boolean => id === 99;
    t.equal(endsInThought([99, a, open, lineFeed], tags, special), true);
    t.equal(endsInThought([99, a, open, b, c], tags, special), true, 'in the middle of one');
    t.equal(endsInThought([99, open, a, close, b], tags, special), false);
    t.equal(endsInThought([open, a, 99, b, lineFeed], tags, special), false, 'a tag in an earlier message opens nothing');
    t.equal(endsInThought([open], null, special), false);
  });
});

t.test('seeds', async (t) => {
  t.test('R287: a seed of 19 digits is never rounded, and never the one that means "any"', async (t) => {
    t.equal(foldSeed('0'), 0);
    t.equal(foldSeed('42'), 42);
    t.equal(foldSeed('4294967294'), 4_294_967_294);
    t.not(foldSeed('9223372036854775807'), foldSeed('9223372036854775806'), 'a float cannot tell these two apart');
    fc.assert(fc.property(fc.bigInt(0n, 9_223_372_036_854_775_807n), (seed) => {
      const folded = foldSeed(String(seed));
      return Number.isInteger(folded) && folded >= 0 && folded < 0xffff_ffff && folded === foldSeed(String(seed));
    }));
    t.equal(codeOf(() => foldSeed('-1')), 'input_invalid');
    t.equal(codeOf(() => foldSeed('12345678901234567890')), 'input_invalid');
  });
  t.test('without one each call has its own', async (t) => {
    const seeds = new Set(Array.from({ length: 8 }, () => samplerOptions({ maxTokens: 1, temperature: 1 }).seed));
    t.ok(seeds.size > 6);
  });
});

t.test('sizes', async (t) => {
  t.test('B16: the bytes of a context never fall as its tokens rise, whatever the samples say', async (t) => {
    const sample = fc.record({ tokens: fc.integer({ min: 1, max: 1_000_000 }), bytes: fc.integer({ min: 0, max: 2 ** 40 }) });
    fc.assert(fc.property(fc.array(sample, { maxLength: 8 }), fc.array(fc.integer({ min: 0, max: 2_000_000 }), { minLength: 2 }), (samples, sizes) => {
      const curve = contextCurve(samples);
      const bytes = [...sizes].sort((one, other) => one - other).map(curve);
      return bytes.every((value, index) => Number.isSafeInteger(value) && value >= (bytes[index - 1] ?? 0));
    }));
    t.pass();
  });
  t.test('it is exact at the samples and straight beyond them', async (t) => {
    const curve = contextCurve([{ tokens: 256, bytes: 1_000 }, { tokens: 1_024, bytes: 4_000 }]);
    t.same([1, 256, 257, 512, 1_024, 2_048].map(curve), [1_000, 1_000, 2_000, 2_000, 4_000, 8_000]);
    t.equal(contextCurve([])(512), 0);
    t.same([0, 1, 256, 257].map(paddedTokens), [256, 256, 256, 512]);
  });
  t.test('pieces of a prompt meet at fixed borders and cover it', async (t) => {
    fc.assert(fc.property(fc.nat(500), fc.nat(500), fc.integer({ min: 1, max: 100 }), (one, other, size) => {
      const [done, total] = [Math.min(one, other), Math.max(one, other)];
      const pieces = piecesOf(done, total, size);
      return pieces.every(({ from, to }, index) => from === (pieces[index - 1]?.to ?? done) && to > from && (to % size === 0 || to === total)) && (pieces.at(-1)?.to ?? done) === total;
    }));
    t.pass();
  });
  t.test('a piece is what a model of that size does in a tenth of a second', async (t) => {
    const onCpu = { cpuShare: 1, threads: 1, batchTokens: 512 };
    t.equal(pieceTokens({ ...onCpu, parameters: 1e6 }), 64);
    t.equal(pieceTokens({ ...onCpu, parameters: 40e6 }), 16);
    t.equal(pieceTokens({ ...onCpu, parameters: 8e9 }), 8);
    t.equal(pieceTokens({ ...onCpu, parameters: 8e9, cpuShare: 0 }), 256, 'all of it on a card');
    t.equal(pieceTokens({ ...onCpu, parameters: 80e6, cpuShare: 0.25 }), 32, 'a quarter of its layers is all the CPU has to do');
    t.equal(pieceTokens({ ...onCpu, parameters: 1e6, batchTokens: 10 }), 10);
  });
  t.test('what is kept of a sequence always leaves the last token of the prompt to evaluate', async (t) => {
    t.equal(commonPrefix([1, 2, 3], [1, 2, 4]), 2);
    const base = { common: 200, promptTokens: 200, exactTokens: 128, pieceTokens: 64, mustBeExact: false };
    t.equal(reusableTokens(base), 199);
    t.equal(reusableTokens({ ...base, mustBeExact: true }), 128);
    t.equal(reusableTokens({ ...base, mustBeExact: true, promptTokens: 128, common: 128 }), 64);
    t.equal(reusableTokens({ ...base, mustBeExact: true, exactTokens: 0 }), 0);
  });
});

t.test('settings of a model', async (t) => {
  t.test('are read from its options, and a word that is none of them is refused', async (t) => {
    t.match(readSettings(specOf('x', { options: { gpuLayers: '12', minGpuLayers: '4', flashAttention: 'off', batchTokens: '64' } })), { gpuLayers: 12, minGpuLayers: 4, flashAttention: false, batchTokens: 64 });
    t.match(readSettings(specOf('x')), { gpuLayers: null, minGpuLayers: null, flashAttention: null, batchTokens: 512, prefillTokens: null, chatTemplate: null });
    for (const options of [{ gpulayers: '1' }, { gpuLayers: 'all' }, { gpuLayers: '-1' }, { minGpuLayers: 'some' }, { batchTokens: '0' }, { flashAttention: 'yes' }, { prefillTokens: '1e9' }]) {
      t.equal(codeOf(() => readSettings(specOf('x', { options: options as unknown as Record<string, string> }))), 'input_invalid', JSON.stringify(options));
    }
  });
});

t.test('runs without a break', async (t) => {
  t.test('are cut before they are too long; joined, the pieces are the text, and no character is cut', async (t) => {
    const run = fc.tuple(fc.constantFrom('a', ' ', '!', '漢', '👍', '\n', 'é', '1'), fc.integer({ min: 1, max: 5_000 })).map(([letter, count]) => letter.repeat(count));
    fc.assert(fc.property(fc.array(run, { maxLength: 8 }), (runs) => {
      const text = runs.join('');
      const pieces = cutLongRuns(text);
      return pieces.join('') === text && pieces.every((piece) => piece.split(/(?<=\s)(?=\S)|(?<=\S)(?=\s)/).every((each) => each.length <= 2_000) && Buffer.from(piece).toString() === piece);
    }), { numRuns: 60 });
    t.pass();
  });
  t.test('of ordinary text are left whole, however long it is', async (t) => {
    const text = 'A word, and then "another"; no run here is long.\n'.repeat(10_000);
    t.same(cutLongRuns(text), [text]);
    t.same(cutLongRuns(''), ['']);
  });
  t.test('are parted between words where there is one: a sign after a letter', async (t) => {
    const text = `${'漢字'.repeat(600)}。${'漢字'.repeat(600)}，末`;
    t.same(cutLongRuns(text).map((piece) => piece.slice(0, 1)), ['漢', '。']);
    t.match(cutLongRuns(`${'x'.repeat(1_990)}'s${'y'.repeat(100)}`)[1], /^y+$/, 'an apostrophe may be inside a word');
  });
});

t.test('chat templates', async (t) => {
  const render = (source: string): TemplateContext['render'] => (variables) => renderTemplate(source, variables);
  const context: TemplateContext = { render: render(chatTemplate), controlTexts: ['<|im_start|>', '<|im_end|>', '<|im|>'], bosText: '', eosText: '' };
  t.test('messages become exactly the text that the model was trained on', async (t) => {
    const rendered = await renderMessages(context, [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'Hi' }], undefined);
    t.same(rendered, ['<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n']);
  });
  t.test('the thinking switch is handed over only when it was set', async (t) => {
    const last = async (thinking: boolean | undefined): Promise<string> => (await renderMessages(context, [{ role: 'user', content: 'Hi' }], thinking)).join('').slice(-30);
    t.ok((await last(false)).endsWith('<think>\n\n</think>\n\n'));
    t.ok((await last(true)).endsWith('assistant\n'));
    t.ok((await last(undefined)).endsWith('assistant\n'));
  });
  t.test('a message cannot end itself: control texts in it are cut, and joined they are what was written', async (t) => {
    await fc.assert(fc.asyncProperty(fc.array(fc.constantFrom('<|im_end|>', '<|im_start|>', '<|im|>', 'a', '<', '|>', '\u{f8f2}', '\u{f8f3}'), { maxLength: 10 }), async (parts) => {
      const content = parts.join('');
      const pieces = await renderMessages(context, [{ role: 'user', content }], undefined);
      const inner = pieces.join('').slice('<|im_start|>user\n'.length, -'<|im_end|>\n<|im_start|>assistant\n'.length);
      const borders = pieces.map((piece) => piece.split('<|im_end|>').length - 1).reduce((sum, count) => sum + count, 0);
      return inner === content && borders === 1;
    }));
    t.pass();
  });
  t.test('a template that knows no system role gets it with the first user message; another refusal is said', async (t) => {
    const strict = `{%- for m in messages %}{%- if m.role == 'system' %}{{ raise_exception('no system here') }}{%- endif %}[{{ m.role }}]{{ m.content }}{%- endfor %}`;
    const picky: TemplateContext = { ...context, render: render(strict) };
    t.same(await renderMessages(picky, [{ role: 'system', content: 'S' }, { role: 'user', content: 'U' }], undefined), ['[user]S\n\nU']);
    const closed: TemplateContext = { ...context, render: render(`{{ raise_exception('never') }}`) };
    await t.rejects(renderMessages(closed, [{ role: 'user', content: 'U' }], undefined), { code: 'input_invalid', message: /never/ });
    await t.rejects(renderMessages(context, [], undefined), { code: 'input_invalid' });
  });
});

t.test('B172: a chat template runs in a thread of its own, without a way out, and within a heap and a deadline', { timeout: 120_000 }, async (t) => {
  const messages = [{ role: 'user', content: 'Hi' }];
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-template-'));
  t.teardown(() => { rmSync(folder, { recursive: true, force: true }); });
  const escaped = join(folder, 'escaped');
  const code = `process.getBuiltinModule?.('fs').writeFileSync('${escaped}', ''); return process`;
  const doubled = (times: number): string => `{% set ns = namespace(x='a') %}{% for i in range(${String(times)}) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}`;
  t.test('attributes lead nowhere', async (t) => {
    for (const walk of [
      "''.__class__.__mro__[1].__subclasses__()", 'messages.constructor', "messages.constructor.constructor('CODE')()", "range.constructor('CODE')()", "raise_exception.constructor('CODE')()",
      "''['constructor']['constructor']('CODE')()", "namespace().__proto__.constructor.constructor('CODE')()", "messages[0].content.constructor.constructor('CODE')()", 'cycler.__init__.__globals__.os', "lipsum.__globals__['os'].popen('id').read()",
      "messages|attr('constructor')", "(messages|map(attribute='constructor')|list)[0]('CODE')()",
    ]) {
      const said = await renderTemplate(`{{ ${walk.replace('CODE', code.replaceAll("'", '"'))} }}`, { messages }).catch((error: unknown) => (error as Error).message);
      t.notMatch(said, /native code|\[object|uid=|=>/, `${walk}: ${said.slice(0, 60)}`);
    }
    t.notOk(existsSync(escaped));
  });
  t.test('loops without end, memory and output beyond use are ended, while the loop of the worker turns', async (t) => {
    let turns = 0;
    const turning = setInterval(() => { turns++; }, 10);
    t.teardown(() => { clearInterval(turning); });
    for (const [source, reason] of [
      ['{% for i in range(10000000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}', /counts through 10000000 numbers/],
      ['{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}', /more than 5000000 steps|longer than 5 s/],
      ['{{ range(1000000000) }}', /counts through 1000000000 numbers/],
      ['{{ range(0, -1000000000, -1) }}', /counts through 1000000000 numbers/],
      ['{{ range(1, 100, 0) }}', /step must not be zero|counts through/],
      [`{% set ns = namespace(x='0123456789') %}{% for i in range(23) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}`, /makes a text of 20971520 characters/],
      [`{% for i in range(100000) %}{{ '${'x'.repeat(250)}' }}{% endfor %}`, /makes a text of 25000000 characters/],
      [`{% set ns = namespace(x=['a']) %}{% for i in range(100000) %}{% set ns.x = ns.x + ns.x %}{% endfor %}`, /makes a list of \d+ items/],
      [`${doubled(20)}{{ ns.x.replace('a', '${'b'.repeat(20)}')|length }}`, /makes a text of 20971520 characters/],
      [`${doubled(14)}{{ ns.x.replace('a', ns.x)|length }}`, /makes a text of 268435456 characters/],
      [`${doubled(16)}{{ ns.x.replace('a', ns.x)|length }}`, /Invalid string length|makes a text/],
      [`{{ 'a\nb'|indent(300000000)|length }}`, /makes a text of \d+ characters|Invalid string length/],
      [`${doubled(20)}{{ ns.x.split('a')|length }}`, /makes a list of 1048577 items/],
      [`${doubled(13)}{% for i in range(100000) %}{% set y = ns.x ~ i|string %}{% endfor %}`, /more than 268435456 characters|5000000 steps/],
      ['{% if true %}'.repeat(20_000), /cannot be read/],
      [`{{ ${'('.repeat(100_000)} }}`, /cannot be read/],
    ] as const) {
      const before = turns;
      await t.rejects(renderMessages({ render: (variables) => renderTemplate(source, variables), controlTexts: [], bosText: '', eosText: '' }, [{ role: 'system', content: 'S' }, { role: 'user', content: 'U' }], undefined), { code: 'input_invalid', message: reason }, source.slice(0, 60));
      if (source.includes('range(100000) %}{% for')) t.ok(turns > before);
    }
    t.equal(await renderTemplate('{{ messages[0].content }}', { messages }), 'Hi', 'and the next template has a thread of its own');
  });
});

t.test('the engine around it', async (t) => {
  t.test('an allocation that the log says was refused is told with its bytes', async (t) => {
    t.equal(wantedBytesIn(['ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 0: cudaMalloc failed: out of memory']), 1_073_741_824);
    t.equal(wantedBytesIn(['ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 4096']), 4_096);
    t.equal(wantedBytesIn(['something failed to allocate']), 0);
    t.equal(wantedBytesIn(['missing tensor blk.0.attn_q.weight']), null);
  });
  t.test('lines of llama.cpp belong to the work during which they came', async (t) => {
    const shown: string[] = [];
    const log = new NativeLog((level, message) => void shown.push(`${level} ${message}`));
    log.take('error', 'before\n');
    const lines = await log.during(async (seen) => { log.take('fatal', 'within\n'); log.take('warn', 'too\n'); return seen(); });
    t.same(lines, ['within', 'too']);
    t.same(shown, ['error before', 'error within', 'warn too']);
  });
  t.test('a card is tried with the backends that its maker has', async (t) => {
    const card = (name: string): Parameters<typeof backendsFor>[0] => ({ device: 'GPU-1', name, totalBytes: null, simulated: false });
    t.same(backendsFor(card('NVIDIA H200'), 'linux'), ['cuda', 'vulkan']);
    t.same(backendsFor(card('AMD Radeon RX 7900'), 'linux'), ['vulkan']);
    t.same(backendsFor(card('Apple M3'), 'darwin'), ['metal']);
  });
  t.test('importing it loads no engine', async (t) => {
    await import('../../workers/llama/engine.js');
    const loaded = Object.keys(createRequire(import.meta.url).cache).filter((path) => path.includes('llama-addon'));
    t.same(loaded, []);
  });
});
