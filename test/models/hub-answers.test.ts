/** What a hub answers is believed in nothing: its shape, its sizes, its names, where it leads. */
import t from 'tap';
import { scene } from './hub/scene.js';

t.test('a listing or a tree of any other shape is refused in few words, wherever the hub leads', async (t) => {
  const { hub, refused } = await scene(t, { limits: { hubAttemptsMax: 1 } });
  const sha = 'a'.repeat(40);
  const deep = `${'['.repeat(500_000)}${']'.repeat(500_000)}`;
  const answer = (pattern: RegExp, text: string, link: string | null = null): void => {
    hub.fault(pattern, ({ response }) => { response.writeHead(200, link === null ? {} : { link }).end(text); return true; });
  };
  const check = async (what: string, reason: RegExp, code = 'hub_answer_invalid'): Promise<void> => {
    const error = await refused('o/m');
    t.match(error, { code, message: reason }, what);
    t.ok(error.message.length < 600, `${what}: ${String(error.message.length)} characters`);
  };
  const listed = (file: string): string => `{"sha":"${sha}","siblings":[${file}]}`;
  for (const [what, text, reason] of [
    ['an object for the list', `{"sha":"${sha}","siblings":{"rfilename":"x"}}`, /stands an object/], ['null for the list', `{"sha":"${sha}","siblings":null}`, /stands null/],
    ['a text for the list', `{"sha":"${sha}","siblings":"${'x'.repeat(100_000)}"}`, /stands "x+"/],
    ['null for a file', listed('null'), /a file of it has no name/], ['a number for a name', listed('{"rfilename":5}'), /a file of it has no name/],
    ['a text for a size', listed('{"rfilename":"x","size":"5"}'), /"x" has a size of "5"/], ['1e308 bytes', listed('{"rfilename":"x","size":1e308}'), /"x" has a size of 1e\+308/], ['1e999 bytes', listed('{"rfilename":"x","size":1e999}'), /"x" has a size of null/],
    ['a deep size', listed(`{"rfilename":"x","size":${deep}}`), /has a size of a list of 1/], ['a long size', listed(`{"rfilename":"${'n'.repeat(1_000_000)}","size":"${'9'.repeat(1_000_000)}"}`), /"n+" has a size of "9+"/],
    ['a deep answer', deep, /it is no JSON object but a list of 1/], ['half an answer', deep.slice(0, 500_000), /it is no JSON \(/],
  ] as const) {
    answer(/GET \/api/, text);
    await check(what, reason);
  }
  answer(/GET \/api/, `{"sha":${deep}}`);
  await check('a deep commit', /a list of 1/, 'revision_unresolved');
  for (const name of ['../x', '/x', 'n'.repeat(1_000_000), 'a\\b']) {
    answer(/GET \/api/, listed(`{"rfilename":${JSON.stringify(name)},"size":1,"blobId":"${sha}"}`));
    await check(name.slice(0, 9), /./, 'file_name_unsafe');
  }
  const sizeless = listed('{"rfilename":"config.json"}');
  const page = '[{"type":"file","path":"config.json","size":1,"oid":"' + sha + '"}]';
  for (const [what, text, link, reason] of [
    ['an object for the tree', '{"error":"busy"}', null, /a page of its tree is no list but an object/], ['null for the tree', 'null', null, /no list but null/], ['null for an entry', '[null]', null, /its tree has null for an entry/],
    ['an entry without a type', '[{"path":"x"}]', null, /an entry of the type nothing/], ['half a tree', '[{', null, /it is no JSON/], ['a file without a name', '[{"type":"file"}]', null, /a file of it has no name/],
    ['a page elsewhere', page, `<${hub.storage}/api/next>; rel="next"`, /the next page of its tree is said to lie at http/], ['a page nowhere', page, '<file:///etc/passwd>; rel="next"', /said to lie at null/],
  ] as const) {
    answer(/\/revision\//, sizeless);
    answer(/\/tree\//, text, link);
    hub.requests.length = 0;
    await check(what, reason);
    t.equal(hub.requests.length, 2, `${what}: nothing more is asked, and nobody else`);
  }
  answer(/\/revision\//, sizeless);
  for (let pages = 0; pages < 2; pages++) answer(/\/tree\//, page, `</api/models/o/m/tree/${sha}?cursor=x>; rel="next"`);
  await check('a circle', /its tree has no end after 2 pages/);
  answer(/\/revision\//, sizeless);
  answer(/\/tree\//, page, `</api/models/o/m/tree/${sha}?cursor=x>; rel="next"`);
  answer(/\/tree\//, page);
  await check('a file on two pages', /twice/, 'file_name_unsafe');
});
