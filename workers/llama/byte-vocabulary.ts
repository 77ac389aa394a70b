/** A byte-level vocabulary, as GPT-2 and Qwen spell it in GGUF: one token a byte, then whatever pieces are added. */
import type { GgufValue } from './gguf-writer.js';

export type PieceKind = 'normal' | 'control' | 'user-defined';

export interface Piece {
  readonly text: string;
  readonly kind: PieceKind;
}

const pieceTypeIds: Readonly<Record<PieceKind, number>> = { 'normal': 1, 'control': 3, 'user-defined': 4 };

/** How byte-level BPE spells each byte: printable Latin-1 as itself, the rest from U+0100 on. */
const byteSpelling: readonly string[] = (() => {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    return String.fromCharCode(printable ? byte : next++);
  });
})();

/** Text as a byte-level vocabulary spells it. */
export function spell(text: string | Uint8Array): string {
  return [...Buffer.from(text as string)].map((byte) => byteSpelling[byte] ?? '').join('');
}

/** Tokens 0 to 255 are the bytes; `pieces` follow in order. Special pieces are spelled as they are. */
export function byteVocabulary(pieces: readonly Piece[], eosId: number): ReadonlyMap<string, GgufValue> {
  const added = pieces.map((piece) => (piece.kind === 'normal' ? spell(piece.text) : piece.text));
  const types = [...byteSpelling.map(() => pieceTypeIds.normal), ...pieces.map((piece) => pieceTypeIds[piece.kind])];
  return new Map<string, GgufValue>([
    ['tokenizer.ggml.model', { kind: 'string', value: 'gpt2' }],
    ['tokenizer.ggml.pre', { kind: 'string', value: 'qwen2' }],
    ['tokenizer.ggml.tokens', { kind: 'strings', value: [...byteSpelling, ...added] }],
    ['tokenizer.ggml.token_type', { kind: 'i32s', value: types }],
    ['tokenizer.ggml.merges', { kind: 'strings', value: ['! !'] }],
    ['tokenizer.ggml.eos_token_id', { kind: 'u32', value: eosId }],
    ['tokenizer.ggml.add_bos_token', { kind: 'bool', value: false }],
  ]);
}
