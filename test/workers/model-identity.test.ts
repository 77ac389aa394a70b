/** A key means one model, whoever comes first with it. */
import t from 'tap';
import { modelKeyOf } from '../../protocol/node/index.js';
import { ask, model, read, rig } from './in-process.js';

t.test('a key that a configured model has is nobody else\'s, not even of who comes first', async (t) => {
  const { caller, close } = await rig(t);
  const [thief, owner] = [await caller(), await caller('b-s2')];
  const own = model({}, { options: { text: 'mine' } });
  const key = modelKeyOf('simulated', own.source, false, own.options, 1);
  const another = model({ loadMs: 1 }).source;
  for (const change of [{ source: another }, { options: {} }, { embedding: true }, { options: { text: 'not mine' } }]) {
    const asked = { ...own, key, ...change };
    await t.rejects(read(thief.generate(ask(asked))), {
      code: 'model_key_taken', details: { model: key, held: `the script whose file, engine and options have the digest ${key.slice(-8)}`, asked: `${asked.source} by simulated with ${JSON.stringify(asked.options)}` },
    }, JSON.stringify(change));
  }
  t.equal((await read(owner.generate(ask({ ...own, key })))).text, 'mine');
  t.equal((await read(thief.generate(ask({ ...own, key, contextTokens: 256 })))).text, 'mine', 'who means the same may have it');
  t.equal((await read(thief.generate(ask(model({ text: 'free' }, { key: 'mine@simulated#1' }))))).text, 'free', 'a key of another form is its user\'s own');
  await close();
});
