// A small real model behind OpenAI's chat completions, on 127.0.0.1. It counts, itself, what it read and generated.
//
//   node local_model_server.mjs LIBRARY MODEL.gguf NAME [PORT [THREADS]]
//
// LIBRARY is the folder of node-llama-cpp. One line of JSON with the port says that it listens; it ends with its
// standard input. GET /calls?after=N answers when no call is active, with one record for each call after the Nth.
// A client that hangs up ends its generation before the next token.
import http from "node:http";
import path from "node:path";
import {pathToFileURL} from "node:url";
import {AnswerReader, chatPieces, historyProblem, replySchema} from "./local_model_chat.mjs";

const [, , LIBRARY, MODEL, NAME, PORT = "0", THREADS = "2"] = process.argv;
const SLOTS = 2;
const CONTEXT_TOKENS = 4096;
// A piece of text may end inside of a character; no character of UTF-8 has more than four tokens.
const CHARACTER_TOKENS_MAX = 4;

const {getLlama, LlamaGrammarEvaluationState} = await import(pathToFileURL(path.join(LIBRARY, "dist", "index.js")));
const llama = await getLlama({gpu: false, build: "never", logLevel: "error"});
const model = await llama.loadModel({modelPath: MODEL});
const context = await model.createContext({contextSize: CONTEXT_TOKENS, sequences: SLOTS, threads: Number(THREADS)});
const free = Array.from({length: SLOTS}, () => context.getSequence());
const waitingForSlot = [];
const calls = [];
const waitingForIdle = [];
let active = 0;

async function withSlot(use) {
    const slot = free.pop() ?? await new Promise((resolve) => waitingForSlot.push(resolve));
    try {
        return await use(slot);
    } finally {
        const next = waitingForSlot.shift();
        if (next) next(slot); else free.push(slot);
    }
}

function tokenized(messages, tools) {
    return chatPieces(messages, tools).flatMap(({text, special}) => model.tokenize(text, special));
}

/**
 * Generates into `call` until the model or `ended` says so, the cap is reached or the client is gone.
 * `onText` gets each piece.
 */
async function generate(slot, tokens, schema, body, call, {onText, ended}) {
    const grammar = schema && await llama.createGrammarForJsonSchema(schema);
    // The last token of the prompt is always evaluated: the first answer comes from it.
    await slot.adaptStateToTokens(tokens.slice(0, -1), false);
    call.cached_tokens = slot.nextTokenIndex;
    const pieces = slot.evaluate(tokens.slice(call.cached_tokens), {
        temperature: body.temperature ?? 0,
        topP: body.top_p,
        seed: body.seed ?? 1,
        grammarEvaluationState: grammar && new LlamaGrammarEvaluationState({model, grammar})
    });
    const room = CONTEXT_TOKENS - tokens.length - 1;
    const cap = Math.min(room, call.max_tokens ?? room);
    let pending = [], last = [];
    call.prompt_tokens = tokens.length;
    for await (const token of pieces) {
        call.generated_tokens += 1;
        pending.push(token);
        const text = model.detokenize(pending, false, last);
        const whole = !text.endsWith("\uFFFD") || pending.length >= CHARACTER_TOKENS_MAX;
        if (whole || call.generated_tokens >= cap) {
            onText(text);
            last = pending;
            pending = [];
        }
        if (call.hung_up) return "hung_up";
        if (ended()) return "stop";
        if (call.generated_tokens >= cap) return "length";
    }
    if (pending.length) onText(model.detokenize(pending, false, last));
    return "stop";
}

function problemOf(body) {
    if (!Array.isArray(body.messages) || !body.messages.length) return "messages must be a list that is not empty";
    if (body.model !== NAME) return `no model ${JSON.stringify(body.model)}; there is ${NAME}`;
    for (const [name, only] of [["n", 1], ["stop", undefined], ["logprobs", false]])
        if ((body[name] ?? only) !== only) return `${name} is not supported`;
    const cap = body.max_completion_tokens ?? body.max_tokens;
    if (cap != null && !(Number.isInteger(cap) && cap >= 1)) return "the cap on the output must be at least 1";
    return historyProblem(body.messages);
}

class Refused extends Error {}

async function complete(body, call, response) {
    const problem = problemOf(body);
    if (problem) throw new Refused(problem);
    call.max_tokens = body.max_completion_tokens ?? body.max_tokens ?? null;
    call.streamed = Boolean(body.stream);
    const tools = body.tool_choice === "none" ? [] : body.tools ?? [];
    const tokens = tokenized(body.messages, tools);
    if (tokens.length > CONTEXT_TOKENS - 2)
        throw new Refused(`the prompt has ${tokens.length} tokens; the context has ${CONTEXT_TOKENS}`);
    const schema = replySchema(body, tools);
    const reader = new AnswerReader(`call_${call.number}`, {withTools: tools.length > 0, asJson: Boolean(schema)});
    const stamp = {id: `chatcmpl-${call.number}`, created: Math.floor(Date.now() / 1000), model: NAME};
    const send = (choices, usage) => response.write("data: " + JSON.stringify(
        {...stamp, object: "chat.completion.chunk", choices, ...(usage ? {usage} : {})}) + "\n\n");
    const onDelta = (delta) => send([{index: 0, delta, finish_reason: null}]);
    const answered = await withSlot(async (slot) => {
        if (call.hung_up) return "hung_up";
        if (call.streamed) {
            response.setHeader("content-type", "text/event-stream");
            onDelta({role: "assistant", content: ""});
        }
        const onText = (text) => {
            for (const delta of reader.read(text)) if (call.streamed && !call.hung_up) onDelta(delta);
        };
        return await generate(slot, tokens, schema, body, call, {onText, ended: () => reader.isWhole});
    });
    if (answered === "hung_up") return;
    call.finish_reason = answered === "stop" && reader.isToolCall ? "tool_calls" : answered;
    const usage = {
        prompt_tokens: call.prompt_tokens,
        completion_tokens: call.generated_tokens,
        total_tokens: call.prompt_tokens + call.generated_tokens,
        prompt_tokens_details: {cached_tokens: call.cached_tokens}
    };
    if (call.streamed) {
        send([{index: 0, delta: {}, finish_reason: call.finish_reason}]);
        if (body.stream_options?.include_usage) send([], usage);
        response.end("data: [DONE]\n\n");
    } else {
        const choice = {index: 0, message: reader.message(), finish_reason: call.finish_reason};
        sendJson(response, 200, {...stamp, object: "chat.completion", choices: [choice], usage});
    }
}

function sendJson(response, status, value) {
    response.writeHead(status, {"content-type": "application/json"});
    response.end(JSON.stringify(value));
}

function sendError(response, status, message) {
    sendJson(response, status, {error: {message, type: "invalid_request_error", param: null, code: null}});
}

async function chat(request, response) {
    const call = {
        number: calls.length + 1, streamed: false, max_tokens: null, prompt_tokens: 0, cached_tokens: 0,
        generated_tokens: 0, finish_reason: null, hung_up: false, hung_up_after_tokens: null,
        ended_after_hang_up_ms: null, problem: null
    };
    let hungUpAt = null;
    calls.push(call);
    active += 1;
    response.on("close", () => {
        if (response.writableEnded) return;
        hungUpAt = performance.now();
        call.hung_up = true;
        call.hung_up_after_tokens = call.generated_tokens;
    });
    try {
        let raw = "";
        for await (const part of request.setEncoding("utf8")) raw += part;
        await complete(JSON.parse(raw), call, response);
    } catch (error) {
        call.problem = String(error.message ?? error);
        const ours = !(error instanceof Refused || error instanceof SyntaxError);
        if (call.hung_up || response.headersSent) response.destroy();
        else sendError(response, ours ? 500 : 400, call.problem);
    } finally {
        if (hungUpAt !== null) call.ended_after_hang_up_ms = Math.round(performance.now() - hungUpAt);
        active -= 1;
        if (active === 0) for (const resume of waitingForIdle.splice(0)) resume();
    }
}

const server = http.createServer(async (request, response) => {
    // Asynchronous clients that are not closed would leave open sockets behind.
    response.shouldKeepAlive = false;
    const url = new URL(request.url, "http://127.0.0.1");
    if (request.method === "POST" && url.pathname === "/v1/chat/completions") return chat(request, response);
    if (url.pathname === "/calls") {
        while (active > 0) await new Promise((resolve) => waitingForIdle.push(resolve));
        return sendJson(response, 200, calls.slice(Number(url.searchParams.get("after") ?? 0)));
    }
    if (url.pathname === "/v1/models")
        return sendJson(response, 200, {object: "list", data: [{id: NAME, object: "model", owned_by: "local"}]});
    return sendError(response, 404, `no such endpoint: ${request.method} ${url.pathname}`);
});
process.stdin.on("end", () => process.exit(0)).on("error", () => process.exit(0)).resume();
server.listen(Number(PORT), "127.0.0.1", () => console.log(JSON.stringify({port: server.address().port})));
