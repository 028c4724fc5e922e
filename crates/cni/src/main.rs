//! The program `calico-ipam`.

fn main() -> std::process::ExitCode {
    calipam_cni::main()
}
