use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::answer::run;
use calipam_simulate::*;
fn main() {
    let lat = std::env::args().nth(1).unwrap();
    let nodes: u32 = std::env::args().nth(2).unwrap().parse().unwrap();
    let mut v: Vec<[u64; 4]> = vec![];
    for seed in 1..=30 {
        let s = Scenario {
            seed,
            datastore: DatastoreKind::Kubernetes,
            nodes,
            pods_per_node: 4,
            latency: lat.clone(),
            arrival: Some(Rate::per(8, Micros::from_secs(1))),
            pools: vec![PoolSpec::new("10.7.0.0/16".parse().unwrap())],
            ..Scenario::default()
        };
        let t = run(&s).unwrap().adds.time;
        v.push([t.median.0, t.p90.0, t.p99.0, t.worst.0]);
    }
    for r in 0..4 {
        let mut c: Vec<u64> = v.iter().map(|x| x[r] / 1000).collect();
        c.sort();
        println!("{:?}", c);
    }
}
