// A page that calls the server at the address in its query with the clients of connect-es and grpc-web,
// and writes what it gets, a line for each call.
import { fromBinary, create, toBinary, createFileRegistry } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import * as grpcWeb from "grpc-web";

const { server, key } = Object.fromEntries(new URLSearchParams(location.search));
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, new Uint8Array(await (await fetch("/api.binpb")).arrayBuffer())));
const service = registry.getService("leaderboard.v1.LeaderboardService");
// reasonOf returns the first field of the detail google.rpc.ErrorInfo, which is not in the protos.
const reasonOf = e => {
	const { value } = e.details.find(d => d.type === "google.rpc.ErrorInfo");
	return new TextDecoder().decode(value.subarray(2, 2 + value[1]));
};
const show = (...values) => document.querySelector("pre").append(values.join(" "), "\n");

const authorize = next => req => {
	req.header.set("Authorization", "Bearer " + key);
	return next(req);
};

async function useConnect(name, user, transport, options) {
	const client = createClient(service, transport({ baseUrl: server, interceptors: [authorize], defaultTimeoutMs: 30_000, ...options }));
	try {
		const submitted = await client.submitScore({ board: "default", result: { userId: user, matchId: "m", points: 30n } });
		show(name, "submit:", submitted.newScore);
		const read = await client.getUserScore({ board: "default", userId: user });
		show(name, "read:", read.data.userId, read.data.score);
		await client.getUserScore({ board: "default", userId: "nobody" }).catch(e =>
			show(name, "error:", e instanceof ConnectError, Code[e.code], reasonOf(e)));
		let events = 0;
		for await (const { data } of client.watchScores({ board: "default", limit: 100 })) {
			if (++events === 1) await client.submitScore({ board: "default", result: { userId: user, matchId: "live", points: 5n } });
			const entry = data.leaderboard.find(e => e.userId === user);
			if (entry.score === 35n) {
				show(name, "live:", entry.score);
				break;
			}
		}
	} catch (e) {
		show(name, "failed:", e instanceof ConnectError, String(e).includes("fetch") ? "no answer" : e);
	}
}

async function useGrpcWeb(name, user, format) {
	const client = new grpcWeb.GrpcWebClientBase({ format });
	const descriptor = (method, type) => new grpcWeb.MethodDescriptor(`/${service.typeName}/${method.name}`, type, Object, Object,
		m => toBinary(method.input, create(method.input, m)), bytes => fromBinary(method.output, bytes));
	const { submitScore, getUserScore, watchScores } = service.method, headers = { Authorization: "Bearer " + key };
	const call = (method, m) => client.unaryCall(`${server}/${service.typeName}/${method.name}`, m, headers, descriptor(method, grpcWeb.MethodType.UNARY));
	try {
		const submitted = await call(submitScore, { board: "default", result: create(registry.getMessage("leaderboard.v1.Result"), { userId: user, matchId: "m", points: 30n }) });
		show(name, "submit:", submitted.newScore);
		await call(getUserScore, { board: "default", userId: "nobody" }).catch(e => show(name, "error:", e instanceof grpcWeb.RpcError, e.code));
		const stream = client.serverStreaming(`${server}/${service.typeName}/WatchScores`, { board: "default", limit: 100 }, headers, descriptor(watchScores, grpcWeb.MethodType.SERVER_STREAMING));
		const { data } = await new Promise((resolve, reject) => stream.on("data", resolve).on("error", reject));
		show(name, "live:", data.leaderboard.find(e => e.userId === user).score);
		stream.cancel();
	} catch (e) {
		show(name, "failed:", e instanceof grpcWeb.RpcError ? "no answer" : e);
	}
}

await useConnect("connect", "ann", createConnectTransport, { useBinaryFormat: true });
await useConnect("connect JSON", "bob", createConnectTransport, { useBinaryFormat: false });
await useConnect("connect GET", "cyd", createConnectTransport, { useBinaryFormat: true, useHttpGet: true });
await useConnect("gRPC-Web", "dan", createGrpcWebTransport, { useBinaryFormat: true });
await useConnect("gRPC-Web JSON", "eve", createGrpcWebTransport, { useBinaryFormat: false });
await useGrpcWeb("gRPC-Web text", "fay", "text");
show("end");
