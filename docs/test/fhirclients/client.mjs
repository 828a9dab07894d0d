// Prints the id, time and value of each heart rate of a patient, read page by page with fhir-kit-client.
import {Client} from 'fhir-kit-client';

const [address, patient] = process.argv.slice(2);
const client = new Client({baseUrl: address, bearerToken: process.env.PULSEGATE_TOKEN});
let pages = 0;
let bundle = await client.search({resourceType: 'Observation', searchParams: {patient, code: '8867-4', _count: 40}});
while (bundle) {
  pages++;
  for (const {resource: r} of bundle.entry) console.log(r.id, r.effectiveDateTime, r.valueQuantity.value);
  bundle = bundle.link.some(l => l.relation === 'next') ? await client.nextPage({bundle}) : undefined;
}
console.log('pages', pages);
