// From OpenAI's chat messages to the model's own form and back. The model knows nothing of tools: they are told in
// the system message, and a JSON grammar leaves it no other answer than one call of one of them, or a final answer.

// Without an end in the grammar the smallest models fill a string until their cap.
const ARGUMENT_CHARS_MAX = 120;
const ANSWER_CHARS_MAX = 240;

const plain = (content) => typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");

function toolLines(tools) {
    const lines = tools.map(({function: f}) =>
        `- ${f.name}(${Object.keys(f.parameters?.properties ?? {}).join(", ")}): ${f.description ?? ""}`);
    return ["Answer with JSON: call one of these tools, or give the final answer.", ...lines].join("\n");
}

function rendered(message) {
    const text = plain(message.content);
    if (message.role === "tool") return {role: "user", text: `Result: ${text}`};
    if (message.role === "developer") return {role: "system", text};
    if (!message.tool_calls?.length) return {role: message.role, text};
    const asked = message.tool_calls.map(({function: f}) => `{"tool": ${JSON.stringify(f.name)}, "arguments": ${f.arguments}}`);
    return {role: message.role, text: [text, ...asked].filter(Boolean).join("\n")};
}

/** The prompt in ChatML, in pieces; only those that are `special` may become control tokens. */
export function chatPieces(messages, tools) {
    const turns = messages.map(rendered);
    if (tools.length) turns.unshift({role: "system", text: toolLines(tools)});
    const pieces = turns.flatMap(({role, text}) => [
        {text: "<|im_start|>", special: true},
        {text: `${role}\n${text}`, special: false},
        {text: "<|im_end|>", special: true},
        {text: "\n", special: false}
    ]);
    return [...pieces, {text: "<|im_start|>", special: true}, {text: "assistant\n", special: false}];
}

/** What is wrong with a history: a tool call without its answer, an answer without its call. */
export function historyProblem(messages) {
    let open = new Set();
    for (const message of messages) {
        if (message.role === "tool") {
            if (!open.delete(message.tool_call_id)) return `an answer without its call: ${message.tool_call_id}`;
            continue;
        }
        if (open.size) break;
        open = new Set((message.tool_calls ?? []).map(({id}) => id));
    }
    return open.size ? `tool calls without an answer: ${[...open].join(", ")}` : null;
}

/** A schema in the words that the grammar understands: it knows `oneOf` and no other alternative. */
function understood(schema) {
    if (Array.isArray(schema)) return schema.map(understood);
    if (schema === null || typeof schema !== "object") return schema;
    const {anyOf, allOf, ...rest} = schema;
    const found = Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, understood(value)]));
    if (anyOf) found.oneOf = understood(anyOf);
    return allOf?.length === 1 ? {...found, ...understood(allOf[0])} : found;
}

function withEnd(schema) {
    if (schema?.type === "string" && !schema.enum && schema.const === undefined)
        return {...schema, maxLength: Math.min(schema.maxLength ?? ARGUMENT_CHARS_MAX, ARGUMENT_CHARS_MAX)};
    if (!schema?.properties) return schema;
    const properties = Object.entries(schema.properties).map(([key, value]) => [key, withEnd(value)]);
    return {...schema, properties: Object.fromEntries(properties)};
}

/** The JSON schema that the reply has to follow; undefined where it is free. */
export function replySchema(body, tools) {
    if (!tools.length) {
        const format = body.response_format?.type;
        if (format === "json_schema") return understood(body.response_format.json_schema.schema);
        return format === "json_object" ? {type: "object", additionalProperties: true} : undefined;
    }
    const named = body.tool_choice?.function?.name;
    const branches = tools.filter(({function: f}) => !named || f.name === named).map(({function: f}) => ({
        type: "object",
        properties: {tool: {const: f.name}, arguments: withEnd(understood(f.parameters ?? {type: "object", properties: {}}))}
    }));
    const free = !named && body.tool_choice !== "required" && body.tool_choice !== "any";
    const answer = {type: "object", properties: {answer: {type: "string", maxLength: ANSWER_CHARS_MAX}}};
    return {oneOf: free ? [...branches, answer] : branches};
}

const CALL_HEAD = /^\s*\{\s*"tool"\s*:\s*"([^"]*)"\s*,\s*"arguments"\s*:\s*/;
const ANSWER_HEAD = /^\s*\{\s*"answer"\s*:\s*"/;

/** Reads a reply as it is generated and gives OpenAI's deltas: text, or one tool call whose arguments arrive in parts. */
export class AnswerReader {
    #id; #asJson; #kind; #raw = ""; #sent = 0; #body = 0; #name = ""; #content = ""; #arguments = "";

    constructor(id, {withTools, asJson}) {
        this.#id = id;
        this.#asJson = asJson;
        this.#kind = withTools ? null : "text";
    }

    get isToolCall() { return this.#kind === "call"; }

    /** Whether a reply in JSON is complete: its grammar would allow blank lines for ever. */
    get isWhole() {
        if (!this.#asJson || !/[}\]]\s*$/.test(this.#raw)) return false;
        try {
            JSON.parse(this.#raw);
            return true;
        } catch {
            return false;
        }
    }

    *read(text) {
        this.#raw += text;
        if (this.#kind === null) yield* this.#head();
        const grown = this.#kind === "text" ? this.#raw : this.#kind === "call" ? this.#callArguments() : this.#answer();
        const part = grown.slice(this.#sent);
        if (this.#kind === null || !part) return;
        this.#sent = grown.length;
        if (this.#kind === "call") {
            this.#arguments += part;
            yield {tool_calls: [{index: 0, function: {arguments: part}}]};
        } else {
            this.#content += part;
            yield {content: part};
        }
    }

    message() {
        if (!this.isToolCall) return {role: "assistant", content: this.#content};
        const call = {id: this.#id, type: "function", function: {name: this.#name, arguments: this.#arguments}};
        return {role: "assistant", content: null, tool_calls: [call]};
    }

    *#head() {
        const call = CALL_HEAD.exec(this.#raw), answer = ANSWER_HEAD.exec(this.#raw);
        if (call) {
            [this.#kind, this.#name, this.#body] = ["call", call[1], call[0].length];
            yield {tool_calls: [{index: 0, id: this.#id, type: "function", function: {name: this.#name, arguments: ""}}]};
        } else if (answer) [this.#kind, this.#body] = ["answer", answer[0].length];
    }

    /** The arguments so far, up to the bracket that ends them. */
    #callArguments() {
        let depth = 0, quoted = false;
        for (let i = this.#body; i < this.#raw.length; i += 1) {
            const c = this.#raw[i];
            if (quoted) {
                if (c === "\\") i += 1; else if (c === '"') quoted = false;
            } else if (c === '"') quoted = true;
            else if (c === "{" || c === "[") depth += 1;
            else if ((c === "}" || c === "]") && --depth === 0) return this.#raw.slice(this.#body, i + 1).trimStart();
        }
        return this.#raw.slice(this.#body).trimStart();
    }

    /** The text of the answer so far, without the escapes of JSON; half an escape waits for its rest. */
    #answer() {
        const whole = /^(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*/.exec(this.#raw.slice(this.#body))[0];
        return this.#kind === null ? "" : JSON.parse(`"${whole.replaceAll("\n", "\\n").replaceAll("\t", "\\t")}"`);
    }
}
