#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "cli/build_info.hpp"
#include "cli/commands.hpp"
#include "cli/preload.hpp"
#include "cli/process.hpp"
#include "codec/registry.hpp"
#include "gradwire/error.hpp"
#include "gradwire/version.hpp"
#include "memory/placement.hpp"

namespace gradwire::cli {
namespace {

// The value of the first line "KEY : VALUE" of /proc/cpuinfo.
std::string cpu_fact(const std::string& key) {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with(key) && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

// Those of its features that codecs could use.
std::string cpu_features() {
  static const std::set<std::string> kOfInterest{"sse4_2",  "avx",      "avx2",        "fma",         "f16c",
                                                 "avx512f", "avx512bw", "avx512_vbmi", "avx512_bf16", "neon",
                                                 "asimd",   "sve",      "sve2"};
  std::istringstream flags(cpu_fact("flags"));
  std::string text;
  for (std::string flag; flags >> flag;) {
    text += kOfInterest.contains(flag) ? (text.empty() ? "" : " ") + flag : "";
  }
  return text.empty() ? "unknown" : text;
}

void print_cpu(std::ostream& out) {
  out << "CPU\n  model: " << cpu_fact("model name") << "\n  features: " << cpu_features() << "\n  codecs compiled for:";
  for (const codec::InstructionSet& set : codec::instruction_sets()) {
    out << ' ' << set.name;
  }
  std::string used;
  try {
    used = codec::active_instruction_set().name;
  } catch (const std::exception& error) {  // a bad GRADWIRE_SIMD
    used = error.what();
  }
  out << "\n  codecs used: " << used << "\n\n";
}

void print_jobs(std::ostream& out) {
  out << "Unchanged jobs (gradwire run)\n";
  const std::filesystem::path program = this_program();
  for (const Library library : {Library::open_mpi, Library::mpich, Library::nccl}) {
    const auto file = find_preload(program, preload_name(library));
    out << "  " << to_string(library) << (library == Library::nccl ? " (LD_PRELOAD by hand)" : "") << ": "
        << (file ? file->string() : preload_name(library) + " was not built") << '\n';
  }
  const auto launcher = find_program("mpirun");
  const std::string version = launcher ? output_of({launcher->string(), "--version"}) : "";
  out << "  mpirun: " << (launcher ? launcher->string() + ", " + version.substr(0, version.find('\n')) : "not in PATH")
      << "\n\n";
}

void print_environment(std::ostream& out) {
  std::vector<std::vector<std::string>> rows{{"name", "value", "default", "values", "meaning"}};
  for (const EnvironmentVariable& variable : environment_variables()) {
    rows.push_back({std::string(variable.name), environment(variable.name).value_or("-"),
                    std::string(variable.default_value), std::string(variable.values), std::string(variable.meaning)});
  }
  out << "Environment variables (-: not set)\n" << text::table(rows, "lllll");
}

}  // namespace

int info(std::ostream& out) {
  out << "gradwire " << kVersion << " (" << kBuild << "), frames of version " << int{kWireVersion} << "\n\nLibraries\n";
  for (const char* library : kLibraries) {
    out << "  " << library << '\n';
  }
  out << '\n';
  print_cpu(out);
  print_jobs(out);
  print_environment(out);
  return 0;
}

int info_topology(std::ostream& out) {
  const memory::Topology topology = memory::read_topology();
  const memory::Processors processors = memory::own_processors();
  out << draw(topology, processors) << "(*: this process may run there)\n"
      << place(topology, processors, environment("GRADWIRE_SOCKET_IFNAME").value_or("")).why << '\n';
  return 0;
}

int info_link() { become_doctor("info --link", {"--link", "1"}); }

}  // namespace gradwire::cli
