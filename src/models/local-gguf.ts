/** Which files of a folder are GGUF models, for those who only look for one to load. */
export { ggufModels, severalGgufs } from './formats/gguf-parts.js';
