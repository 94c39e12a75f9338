// A question of what would happen: fields that go into the address, and the server's answer.

import type { ComponentChild } from "preact";
import { useState } from "preact/hooks";
import { go } from "../router";
import { useAsked } from "./asked";
import { Curl, Empty, Field, Panel, Problem } from "./basics";
import { Tree } from "./tree";

export interface Question {
  name: string;
  label: string;
  hint?: string;
}

export function ExplainForm(props: {
  title: string;
  view: string;
  address: string;
  questions: Question[];
  query: URLSearchParams;
  empty: string;
  /** The answer in sentences; the whole of it stands behind them. */
  tell?: (answer: unknown) => ComponentChild;
}) {
  const [texts, setTexts] = useState<Record<string, string>>(() =>
    Object.fromEntries(props.questions.map(({ name }) => [name, props.query.get(name) ?? ""])),
  );
  const of = (value: (name: string) => string) => {
    const stated = props.questions.map(({ name }) => [name, value(name).trim()]);
    return `${props.address}?${new URLSearchParams(stated.filter(([, value]) => value !== ""))}`;
  };
  const isAsked = props.questions.some(({ name }) => (props.query.get(name) ?? "") !== "");
  const address = isAsked ? of((name) => props.query.get(name) ?? "") : undefined;
  const { body, error } = useAsked<unknown>(address);
  return (
    <Panel title={props.title} wide>
      <form
        class="search"
        onSubmit={(event) => {
          event.preventDefault();
          go(
            [props.view],
            Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, text.trim()])),
          );
        }}
      >
        {props.questions.map(({ name, label, hint }) => (
          <Field key={name} label={label} {...(hint ? { hint } : {})}>
            {(attributes) => (
              <input
                {...attributes}
                autocomplete="off"
                spellcheck={false}
                value={texts[name] ?? ""}
                onInput={(event) => setTexts({ ...texts, [name]: event.currentTarget.value })}
              />
            )}
          </Field>
        ))}
        <button class="primary" type="submit">
          Explain
        </button>
      </form>
      {address === undefined && <Empty>{props.empty}</Empty>}
      {error !== undefined && <Problem what="It is not explained." error={error} />}
      {body !== undefined && !props.tell && <Tree value={body} />}
      {body !== undefined && props.tell && (
        <>
          {props.tell(body)}
          <details class="details">
            <summary>Details</summary>
            <Tree value={body} />
          </details>
        </>
      )}
      <Curl method="GET" path={of((name) => texts[name] ?? "")} />
    </Panel>
  );
}
