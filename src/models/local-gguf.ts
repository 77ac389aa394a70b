/** Which files of a folder are GGUF models, for those who only look for one to load. */
export { ggufModels } from './formats/gguf-parts.js';
