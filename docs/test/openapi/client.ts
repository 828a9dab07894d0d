// Sends a reading and reads it back, with the types that openapi-typescript generates.
import createClient from 'openapi-fetch';
import type {paths} from './generated';

declare const process: {argv: string[]; env: Record<string, string>};

const [address, device, time] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({baseUrl: address, headers: {Authorization: `Bearer ${process.env.PULSEGATE_TOKEN}`}});
const sent = await client.POST('/v1/readings', {body: {device, time, heart_rate_bpm: 62.5}});
if (!sent.data || !('status' in sent.data)) throw new Error(sent.error?.title);
console.log(sent.data.status);
const read = await client.GET('/v1/devices/{device}/readings', {params: {path: {device}, query: {from: time}}});
if (typeof read.data !== 'object' || !('readings' in read.data)) throw new Error(read.error?.title);
for (const r of read.data.readings) console.log(r.device, r.time, r.heart_rate_bpm);
