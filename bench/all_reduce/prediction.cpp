#include "bench/all_reduce/prediction.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "bench/all_reduce/process.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"
#include "choice/codec_speed.hpp"
#include "exchange/default_codecs.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::bench {
namespace {

constexpr std::uint32_t kTiles = 1024;  // 16 MiB, so that gradients come from memory, not from a cache

int world_size() {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

double greatest(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

// Returns half the round trip time of one byte between rank 0 and rank `other`, on all ranks. It takes a low quantile:
// other threads that use the core delay a message by whole slices of the scheduler.
double measure_latency(int other) {
  constexpr int kRounds = 50;
  constexpr int kTag = 7;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<double> seconds;
  char byte = 0;
  for (int round = 0; round < kRounds && (rank == 0 || rank == other) && other < world_size(); ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (const int sender : {0, other}) {
      if (rank == sender) {
        MPI_Send(&byte, 1, MPI_CHAR, other - rank, kTag, MPI_COMM_WORLD);
      } else {
        MPI_Recv(&byte, 1, MPI_CHAR, other - rank, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
    }
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 2);
  }
  return greatest(seconds.empty() ? 0 : quantile(seconds, 0.1));
}

// Returns the CPU seconds for each byte that a rank sends while it receives one, of the rank with the most. Neighbours
// exchange chunks and poll rarely, so that waiting costs nothing.
double measure_transport() {
  constexpr int kMessages = 64;
  constexpr int kBytes = static_cast<int>(kDefaultChunkBytes);
  constexpr int kTag = 8;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int ranks = world_size();
  std::vector<char> out(static_cast<std::size_t>(kMessages) * kBytes, 1), in(out.size());
  double best = NAN;
  for (int round = 0; round < 3 && ranks > 1; ++round) {  // the first round connects
    std::vector<MPI_Request> requests(std::size_t{2} * kMessages);
    MPI_Barrier(MPI_COMM_WORLD);
    const double before = cpu_seconds();
    for (int i = 0; i < kMessages; ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i) * kBytes;
      const std::size_t both = std::size_t{2} * static_cast<std::size_t>(i);
      MPI_Irecv(in.data() + at, kBytes, MPI_CHAR, (rank + ranks - 1) % ranks, kTag, MPI_COMM_WORLD, &requests[both]);
      MPI_Isend(out.data() + at, kBytes, MPI_CHAR, (rank + 1) % ranks, kTag, MPI_COMM_WORLD, &requests[both + 1]);
    }
    for (int done = 0; done == 0;) {
      MPI_Testall(2 * kMessages, requests.data(), &done, MPI_STATUSES_IGNORE);
      std::this_thread::sleep_for(std::chrono::milliseconds(done != 0 ? 0 : 1));
    }
    best = std::fmin(best, (cpu_seconds() - before) / static_cast<double>(out.size()));
  }
  return greatest(std::isnan(best) ? 0 : best);
}

int find_ranks_per_node() {
  MPI_Comm node = MPI_COMM_NULL;
  int ranks = 1;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &ranks);
  MPI_Comm_free(&node);
  return static_cast<int>(greatest(ranks));
}

// Returns bytes per second and direction between neighbours on a node (consecutive ranks) that all exchange at once.
double measure_inside(int ranks_per_node) {
  constexpr int kBytes = 4 << 20;
  constexpr int kTag = 9;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int first = rank / ranks_per_node * ranks_per_node;
  const int members = std::min(ranks_per_node, world_size() - first);
  const int place = rank - first;
  std::vector<char> out(kBytes, 1), in(kBytes);
  std::vector<double> seconds;
  for (int round = 0; round < 5; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    MPI_Sendrecv(out.data(), kBytes, MPI_CHAR, first + (place + 1) % members, kTag, in.data(), kBytes, MPI_CHAR,
                 first + (place + members - 1) % members, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    seconds.push_back(greatest(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  }
  return kBytes / median(seconds);
}

}  // namespace

Predictor::Predictor(const Options& options, double bytes_per_second)
    : chunk_bytes_(options.chunk_bytes != 0 ? static_cast<double>(options.chunk_bytes)
                                            : static_cast<double>(kDefaultChunkBytes)) {
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  const double added =
      options.link.empty()
          ? 0
          : std::chrono::duration<double>(LinkSchedule::parse(options.link).link_at({}).latency).count();
  const int members = options.ranks_per_node != 0 ? static_cast<int>(options.ranks_per_node) : find_ranks_per_node();
  // If all ranks are on one node, its memory is the link between them.
  const int ranks_per_node = members < world_size() ? members : 1;
  cluster_ = {.ranks = world_size(),
              .ranks_per_node = ranks_per_node,
              .ranks_per_core = std::isnan(options.ranks_per_core) ? world_size() / cores : options.ranks_per_core,
              .transport_seconds = measure_transport(),
              .inter = {measure_latency(ranks_per_node) + added, bytes_per_second},
              .in_flight_bytes = static_cast<double>(kDefaultInFlightBytes)};
  if (ranks_per_node > 1) {
    cluster_.intra = {measure_latency(1), measure_inside(ranks_per_node)};
  }
}

const exchange::CodecCost& Predictor::cost_of(const std::string& codec, bool feedback) {
  const auto [found, added] = costs_.try_emplace({codec, feedback});
  if (added) {
    const auto cost = choice::measure_codec(CodecSpec::parse(codec), feedback, std::chrono::milliseconds(100), kTiles);
    found->second = {cost.bytes, greatest(cost.encode_seconds), greatest(cost.decode_seconds)};
  }
  return found->second;
}

exchange::Cost Predictor::cost(const ContenderRecipe& recipe, double elements) {
  if (recipe.implementation != "gradwire") {
    return exchange::dense_cost(cluster_, elements, sizeof(float));  // the sum is assumed to be a ring
  }
  const CodecSpec codec = CodecSpec::parse(recipe.codec);
  const exchange::CodecCost first = cost_of(recipe.codec, recipe.error_feedback);
  if (recipe.algorithm == "hierarchical" && cluster_.ranks_per_node > 1) {
    return exchange::hierarchical_cost(cluster_, elements, cost_of(recipe.intra, recipe.error_feedback), first,
                                       chunk_bytes_);
  }
  if (recipe.algorithm == "one_shot") {
    return exchange::one_shot_cost(cluster_, elements, first, chunk_bytes_);
  }
  const CodecSpec hop = recipe.second_hop.empty() ? exchange::default_second_hop(codec, cluster_.ranks)
                                                  : CodecSpec::parse(recipe.second_hop);
  const exchange::CodecCost second = cost_of(hop.to_string(), recipe.error_feedback);
  return exchange::two_shot_cost(cluster_, elements, first, second, chunk_bytes_);
}

std::string Predictor::describe() const {
  const std::string inside = cluster_.ranks_per_node > 1
                                 ? std::to_string(cluster_.ranks_per_node) + " ranks a node and " +
                                       format_rate(cluster_.intra.bytes_per_second) + " inside it, "
                                 : "";
  return "predicted by the cost model: latency " + fixed(cluster_.inter.latency_seconds * 1e6, 0) + " us, " +
         format_rate(cluster_.inter.bytes_per_second) + ", " + inside + fixed(cluster_.ranks_per_core, 1) +
         " ranks a core, " + fixed(cluster_.transport_seconds * 1e9, 2) +
         " ns of a core for each byte sent and received, codecs as measured on one idle core; error = predicted / p50 "
         "- 1\n";
}

}  // namespace gradwire::bench
