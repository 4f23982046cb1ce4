// gradwire-doctor: the program that `gradwire doctor` and `gradwire info --link` become. It checks every rank of the
// MPI job as which it is started, or measures the job's link alone.
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>

#include "base/durable_file.hpp"
#include "base/elapsed.hpp"
#include "base/text.hpp"
#include "choice/link_measurement.hpp"
#include "exchange/peers.hpp"
#include "exchange/tiers.hpp"
#include "gradwire/error.hpp"
#include "gradwire/mpi_transport.hpp"
#include "plugins/mpi_doctor/findings.hpp"
#include "plugins/mpi_doctor/link_report.hpp"
#include "plugins/mpi_doctor/pairs.hpp"
#include "plugins/mpi_doctor/report.hpp"

namespace gradwire::doctor {
namespace {

constexpr int kUsageStatus = 2;

struct Arguments {
  ToolFacts told;
  std::string json;       // file; empty: none
  bool launched = false;  // the tool reads the report, since launchers print messages about a rank that ends with 1
  bool link = false;      // only the link of all ranks is measured, and described in a policy's terms
};

/// Reads the tool's arguments: --build TEXT, --preload LIBRARY=FILE, --json FILE, --launched 1; or --link 1.
Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--build") {
      arguments.told.build = value;
    } else if (name == "--json") {
      arguments.json = value;
    } else if (name == "--launched") {
      arguments.launched = true;
    } else if (name == "--link") {
      arguments.link = true;
    } else if (const std::size_t equals = value.find('='); name == "--preload" && equals != std::string::npos) {
      arguments.told.preloads.push_back(
          {.name = value.substr(0, equals), .path = value.substr(equals + 1), .fingerprint = ""});
    }
  }
  return arguments;
}

std::string thread_level(int provided) {
  switch (provided) {
    case MPI_THREAD_MULTIPLE: return "MPI_THREAD_MULTIPLE";
    case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
    default: return "MPI_THREAD_SINGLE";
  }
}

/// "Open MPI v4.1.4", "MPICH Version: 4.0.2": the beginning of MPI's long text.
std::string mpi_name() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::string name(text.data(), static_cast<std::size_t>(length));
  name = name.substr(0, name.find_first_of(",\n"));
  for (char& c : name) {
    c = c == '\t' ? ' ' : c;
  }
  return name;
}

int node_of(int rank) {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int least = rank;
  MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, host);
  MPI_Comm_free(&host);
  return least;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
  return value == nullptr ? "" : value;
}

/// The variables by which launchers tell their processes how many they are, and which one this is.
struct Launched {
  const char* size;
  const char* rank;
};
constexpr std::array<Launched, 3> kLaunchers{{{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                              {"PMI_SIZE", "PMI_RANK"},
                                              {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}}};

/// Returns the launcher of another MPI that started several ranks. Each of them is alone in its world, and only the
/// first one prints.
const Launched* find_foreign_launcher() {
  for (const Launched& launcher : kLaunchers) {
    const std::string size = variable(launcher.size);
    if (!size.empty() && size != "1") {
      return &launcher;
    }
  }
  return nullptr;
}

Finding foreign(const Launched& launcher, const std::string& mpi) {
  return {Severity::problem,
          "MPI",
          "a launcher started " + variable(launcher.size) + " processes (" + launcher.size +
              "), but each is a job of its own in " + mpi,
          "start it by the launcher of the MPI that gradwire was built with; under srun choose it by --mpi=pmix (Open "
          "MPI) or --mpi=pmi2 (MPICH)",
          {0}};
}

int tell(const Arguments& arguments, const std::vector<Facts>& facts, const Pairs& pairs, const Findings& findings) {
  std::cout << report_text(facts, pairs, findings) << std::flush;
  if (!arguments.json.empty()) {
    try {
      write_report_file(arguments.json, [&](std::ostream& file) { file << report_json(facts, pairs, findings); });
    } catch (const Error& error) {
      std::cerr << "gradwire doctor: --json " << text::printable(error.what()) << " on "
                << text::printable(facts.front().host) << "; name a file in a folder that is there\n";
      return kUsageStatus;
    }
  }
  return arguments.launched ? 0 : exit_status(findings);
}

int examine_alone(const Arguments& arguments, const Facts& mine) {
  const Launched* const launcher = find_foreign_launcher();
  if (launcher != nullptr && variable(launcher->rank) != "0") {
    return 0;
  }
  const std::vector<Facts> facts{mine};
  Findings findings = find(facts, {});
  if (launcher != nullptr) {
    findings.insert(findings.begin(), foreign(*launcher, mine.mpi));
  }
  return tell(arguments, facts, {}, findings);
}

/// Reads the facts of all ranks; for a text that cannot be read it uses what rank 0 knows of that rank.
std::vector<Facts> read_all(const std::vector<std::string>& texts) {
  std::vector<Facts> facts;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    try {
      facts.push_back(facts_from_json(texts[rank]));
    } catch (const std::exception& error) {
      facts.emplace_back();
      facts.back().host = "unknown";
      facts.back().errors.push_back(std::string("what the rank says of itself cannot be read: ") + error.what());
    }
    facts.back().rank = static_cast<int>(rank);
  }
  name_hosts(facts);
  return facts;
}

int examine(const Arguments& arguments, int provided) {
  int ranks = 1;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Facts mine = read_facts(arguments.told, "/");
  mine.rank = rank;
  mine.mpi = mpi_name();
  mine.threads = thread_level(provided);
  if (ranks == 1) {
    return examine_alone(arguments, mine);
  }
  mine.node = node_of(rank);
  const std::vector<std::string> texts = gather_texts(MPI_COMM_WORLD, to_json(mine));
  if (rank != 0) {
    return serve(MPI_COMM_WORLD);
  }
  std::vector<Facts> facts = read_all(texts);
  const Pairs pairs = measure(MPI_COMM_WORLD, facts, choose_ranks(facts));
  const int status = tell(arguments, facts, pairs, find(facts, pairs));
  end_service(MPI_COMM_WORLD);
  return status;
}

/// Measures the link as a session does, between neighbours and on all ranks at once, and prints it on rank 0.
int tell_link() {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks == 1) {
    std::cout << "One rank has no links; start it as a job: mpirun -np 4 gradwire info --link\n";
    return 0;
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::shared_ptr<Transport> transport = mpi::make_transport(MPI_COMM_WORLD);
  exchange::TransportPeers peers(*transport, mpi::kCreationTimeout);
  const exchange::Tiers tiers(transport->nodes(), transport->world_size());
  const exchange::Cluster cluster = choice::measure_cluster(
      peers, tiers, transport->rank(), [&](const choice::Neighbours& neighbours, std::uint64_t bytes) {
        return peers.time_exchange(neighbours.to, neighbours.from, bytes);
      });
  const LinkEstimate link = choice::to_estimate(cluster, seconds_since(begin));
  if (transport->rank() == 0) {
    std::cout << link_report(link, static_cast<std::size_t>(ranks), static_cast<std::size_t>(tiers.nodes()));
  }
  return 0;
}

}  // namespace
}  // namespace gradwire::doctor

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int status = 1;
  const gradwire::doctor::Arguments arguments = gradwire::doctor::read_arguments(argc, argv);
  try {
    status = arguments.link ? gradwire::doctor::tell_link() : gradwire::doctor::examine(arguments, provided);
  } catch (const std::exception& error) {
    std::cerr << (arguments.link ? "gradwire: " : "gradwire doctor: ") << gradwire::text::printable(error.what())
              << '\n';
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  MPI_Finalize();
  return status;
}
