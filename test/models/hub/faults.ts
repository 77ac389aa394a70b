/** The ways in which hubs, proxies and networks have been seen to misbehave. */
import { refuse, type Fault } from './server.js';

export const status = (code: number, headers: Record<string, string> = {}, name = 'Busy'): Fault => ({ response }) => {
  refuse(response, code, name, headers);
  return true;
};

export const reset: Fault = ({ response }) => {
  response.socket?.resetAndDestroy();
  return true;
};

/** The connection is cut after so many bytes of the body. */
export const resetAfter = (bytes: number): Fault => ({ response, file }) => {
  if (file === null) return false;
  response.writeHead(200, { 'content-length': String(file.bytes.length) });
  response.write(file.bytes.subarray(0, bytes), () => { response.socket?.resetAndDestroy(); });
  return true;
};

/** 200 with these bytes, a clean end and no word of how many they are. */
export const sends = (make: (bytes: Buffer) => Buffer): Fault => ({ response, file }) => {
  if (file === null) return false;
  response.writeHead(200, { etag: '"x"' });
  response.end(make(file.bytes));
  return true;
};

/** A status, headers and a body of one's own for a request that asks for a range; any other is served. */
export const answersRange = (make: (bytes: Buffer, start: number) => { readonly status: number; readonly contentRange?: string; readonly body: Buffer }): Fault => ({ request, response, file }) => {
  const [, start] = /^bytes=(\d+)-/.exec(request.range ?? '') ?? [];
  if (file === null || start === undefined) return false;
  const { status: code, contentRange, body } = make(file.bytes, Number(start));
  response.writeHead(code, contentRange === undefined ? {} : { 'content-range': contentRange });
  response.end(body);
  return true;
};

/** Some bytes, and then nothing for as long as the connection lasts. */
export const stallsAfter = (bytes: number): Fault => ({ response, file }) => {
  if (file === null) return false;
  response.writeHead(200, { 'content-length': String(file.bytes.length) });
  response.write(file.bytes.subarray(0, bytes));
  return true;
};

export const redirectTo = (location: string, code = 302): Fault => ({ response }) => {
  response.writeHead(code, { location }).end();
  return true;
};

/** Something happens before the request is served as ever. */
export const meanwhile = (act: () => void): Fault => () => {
  act();
  return false;
};
