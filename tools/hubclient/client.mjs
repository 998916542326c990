// Asks a Hugging Face Hub for a model with the Hub's own client and prints what it
// got as one JSON object.
//
//   node client.mjs HUB-URL OWNER/REPO REVISION [TOKEN]
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { downloadFile, fileDownloadInfo, listFiles, modelInfo, pathsInfo, snapshotDownload, whoAmI } from "@huggingface/hub";

const [hubUrl, repo, revision, accessToken] = process.argv.slice(2);
const asked = { hubUrl, repo, revision, accessToken };
const sha256 = (data) => createHash("sha256").update(data).digest("hex");
const attempt = async (work) => {
	try {
		return await work();
	} catch (error) {
		return { error: error.message, status: error.statusCode };
	}
};

console.debug = () => {};
const result = { files: [] };
result.who = accessToken ? (await attempt(() => whoAmI({ hubUrl, accessToken }))).name : undefined;
result.info = await attempt(() => modelInfo({ hubUrl, name: repo, revision, accessToken, additionalFields: ["sha", "author", "cardData"] }));
result.missing = await attempt(() => fileDownloadInfo({ ...asked, path: "no/such/file" }));
result.list = await attempt(async () => {
	const listed = [];
	for await (const file of listFiles({ ...asked, recursive: true })) {
		listed.push(file);
	}
	return listed;
});
for (const file of Array.isArray(result.list) ? result.list.filter((file) => file.type === "file") : []) {
	result.files.push(
		await attempt(async () => {
			const path = file.path.split("/").map(encodeURIComponent).join("/"); // the client does not
			const facts = await fileDownloadInfo({ ...asked, path });
			const blob = await downloadFile({ ...asked, path });
			const part = await blob.slice(1, 5).arrayBuffer();
			const [described] = await pathsInfo({ ...asked, paths: [file.path], expand: true });
			return {
				path: file.path, size: facts.size, etag: facts.etag, sha256: sha256(Buffer.from(await blob.arrayBuffer())),
				part: Buffer.from(part).toString("hex"), oid: described.oid, lfs: described.lfs?.oid, commit: described.lastCommit.id,
			};
		}),
	);
}
const cacheDir = await mkdtemp(join(tmpdir(), "hubclient-"));
result.snapshot = await attempt(async () => {
	const folder = await snapshotDownload({ ...asked, cacheDir });
	return { commit: folder.split("/").at(-1), config: sha256(await readFile(join(folder, "config.json"))) };
});
await rm(cacheDir, { recursive: true });
console.log(JSON.stringify(result));
