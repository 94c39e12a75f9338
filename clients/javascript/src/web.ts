/**
 * For servers that speak the Fetch API: Deno, Bun, workers, Next's route handlers, Hono.
 *
 * `Deno.serve(protect(handler, { client, key }))`. There is no peer's address in a `Request`, so `key` is needed.
 */

import { fields, Guard, type MiddlewareOptions, Settlement } from "./middleware.js";

/** The options, of which `key` is needed. */
export type WebOptions = MiddlewareOptions<Request> & Required<Pick<MiddlewareOptions<Request>, "key">>;

const settlements = new WeakMap<Request, Settlement>();

/** Makes the guard for requests of the Fetch API. */
export function guardOf(
  options: WebOptions,
  path: (request: Request) => string = (request) => new URL(request.url).pathname,
): Guard<Request> {
  return new Guard<Request>(options, {
    attributes: (request) => ({ path: path(request), method: request.method }),
    header: (request, name) => request.headers.get(name),
    method: (request) => request.method,
    trust: "trust it in `key`",
  });
}

/** With all that is not ASCII escaped. */
export function escapedText(path: string): string {
  return path.replace(/[\u0080-\uffff]+/g, (text) =>
    encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd")),
  );
}

/** Asks before each request, and hands it to the handler with its further arguments. */
export function protect<R extends Request, A extends unknown[]>(
  handler: (request: R, ...rest: A) => Response | Promise<Response>,
  options: WebOptions,
): (request: R, ...rest: A) => Promise<Response> {
  const guard = guardOf(options);
  return (request, ...rest) => serve(guard, request, async () => handler(request, ...rest));
}

/** Asks for one request, and calls `next` if it may go ahead. */
export async function serve(
  guard: Guard<Request>,
  request: Request,
  next: () => Promise<Response>,
): Promise<Response> {
  const found = await guard.ask(request);
  if (found === undefined) return next();
  if (!(found instanceof Settlement)) {
    return new Response(found.body, { status: found.status, headers: found.headers });
  }
  settlements.set(request, found);
  let response: Response;
  try {
    response = await next();
  } catch (error) {
    void found.end();
    throw error;
  }
  // A new one, since the headers of a response that came from `fetch` cannot be changed.
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(fields(found.decision))) headers.set(name, value);
  found.answered(response.headers.get("access-control-allow-methods"));
  const { status, statusText } = response;
  return new Response(ending(response.body, found), { status, statusText, headers });
}

/** What a request has reserved; nothing if it was not asked for. */
export function settlementOf(request: Request): Settlement | undefined {
  return settlements.get(request);
}

/** The same bytes; the settlement ends when they have been read, or given up. */
function ending(body: ReadableStream<Uint8Array> | null, settlement: Settlement): BodyInit | null {
  if (body === null) {
    void settlement.end();
    return null;
  }
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (!done) {
          controller.enqueue(value);
          return;
        }
        controller.close();
      } catch (error) {
        controller.error(error);
      }
      void settlement.end();
    },
    async cancel(reason) {
      void settlement.end();
      await reader.cancel(reason);
    },
  });
}
