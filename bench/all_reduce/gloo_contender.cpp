// Runs Gloo's ring all-reduce over TCP; ranks find each other through MPI.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/all_reduce/contender.hpp"

namespace gradwire::bench {
namespace {

// Gloo publishes each rank's addresses with set() and reads the others' with get(). All ranks call set() equally often
// and in the same order, so set() can be a collective call that gives every rank all values.
class MpiStore : public gloo::rendezvous::Store {
 public:
  void set(const std::string& key, const std::vector<char>& data) override {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const auto keys = gather(std::vector<char>(key.begin(), key.end()), ranks);
    const auto values = gather(data, ranks);
    for (std::size_t rank = 0; rank < keys.size(); ++rank) {
      entries_[std::string(keys[rank].begin(), keys[rank].end())] = values[rank];
    }
  }
  std::vector<char> get(const std::string& key) override { return entries_.at(key); }
  void wait(const std::vector<std::string>& keys) override {
    for (const auto& key : keys) {
      if (!entries_.contains(key)) {
        throw std::runtime_error("Gloo waits for \"" + key + "\", which no rank has set");
      }
    }
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  static std::vector<std::vector<char>> gather(const std::vector<char>& mine, int ranks) {
    const auto world = static_cast<std::size_t>(ranks);
    const int bytes = static_cast<int>(mine.size());
    std::vector<int> counts(world), places(world);
    MPI_Allgather(&bytes, 1, MPI_INT, counts.data(), 1, MPI_INT, MPI_COMM_WORLD);
    for (std::size_t rank = 1; rank < world; ++rank) {
      places[rank] = places[rank - 1] + counts[rank - 1];
    }
    std::vector<char> all(static_cast<std::size_t>(places.back() + counts.back()));
    MPI_Allgatherv(mine.data(), bytes, MPI_CHAR, all.data(), counts.data(), places.data(), MPI_CHAR, MPI_COMM_WORLD);
    std::vector<std::vector<char>> parts;
    for (std::size_t rank = 0; rank < world; ++rank) {
      parts.emplace_back(all.begin() + places[rank], all.begin() + places[rank] + counts[rank]);
    }
    return parts;
  }

  std::map<std::string, std::vector<char>> entries_;
};

bool one_node() {
  MPI_Comm node = MPI_COMM_NULL;
  int here = 1, all = 1;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &here);
  MPI_Comm_free(&node);
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  return here == all;
}

class GlooContender : public Contender {
 public:
  explicit GlooContender(const std::string& interface) {
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    gloo::transport::tcp::attr attributes;
    if (!interface.empty()) {
      attributes.iface = interface;
    } else if (one_node()) {
      attributes.hostname = "127.0.0.1";
    } else {
      char name[256] = {};
      gethostname(name, sizeof name - 1);
      attributes.hostname = name;
    }
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    MpiStore store;
    context->connectFullMesh(store, device);
    context_ = context;
  }

  std::uint64_t all_reduce(std::span<const float> input, std::span<float> output) override {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setInput(const_cast<float*>(input.data()), input.size());  // NOLINT: Gloo only reads it
    options.setOutput(output.data(), output.size());
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
    return static_cast<std::uint64_t>(ring_bytes(context_->size, static_cast<double>(input.size_bytes())));
  }

 private:
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

ContenderRecipe gloo_contender(const Options& options) {
  return {"gloo", "fp32", "ring",
          [interface = options.interface] { return std::make_unique<GlooContender>(interface); }};
}

}  // namespace gradwire::bench
