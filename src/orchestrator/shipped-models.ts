/** The models that ship with Leasehold, for the rest of src/: it knows the layers below through this folder alone. */
export { checkAnswer, tinyModelNames, tinyModels, type TinyModel, type TinyModelName } from '../../workers/models/index.js';
