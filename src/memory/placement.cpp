#include "memory/placement.hpp"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/environment.hpp"
#include "gradwire/error.hpp"

namespace gradwire::memory {
namespace {

constexpr std::size_t kCoresPerThreadCore = 8;

Processors common(const Processors& a, const Processors& b) {
  Processors both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

// Returns the node with most of the processors.
const Topology::Node* nearest(const Topology& topology, const Processors& bound, std::string_view card) {
  const Topology::Node* best = nullptr;
  std::size_t most = 0;
  for (const Topology::Node& node : topology.nodes) {
    const std::size_t processors = common(node.processors, bound).size();
    const bool has_card = std::any_of(topology.cards.begin(), topology.cards.end(), [&](const Topology::Card& one) {
      return one.name == card && one.node == node.number;
    });
    if (processors > most || (processors == most && processors > 0 && has_card)) {
      best = &node;
      most = processors;
    }
  }
  return best;
}

}  // namespace

Placement place(const Topology& topology, const Processors& bound, std::string_view card) {
  if (topology.nodes.size() < 2) {
    return {.node = {}, .threads = {}, .most_ranks = 0, .why = "this host has one memory node: nothing is bound"};
  }
  std::size_t all = 0;
  std::size_t used = 0;
  for (const Topology::Core& core : topology.cores) {
    all += core.processors.size();
    used += common(core.processors, bound).size();
  }
  const Topology::Node* node = nearest(topology, bound, card);
  if (node == nullptr || used >= all) {
    return {.node = {},
            .threads = {},
            .most_ranks = 0,
            .why =
                "the process may run on every core of this host: nothing is bound; bind ranks, as by mpirun "
                "--bind-to socket"};
  }
  Placement placement{.node = node->number,
                      .threads = {},
                      .most_ranks = static_cast<int>(all / used),
                      .why = "buffers on memory node " + std::to_string(node->number)};
  std::vector<const Topology::Core*> cores;  // of the binding, all whose processors it has on this node last
  for (const Topology::Core& core : topology.cores) {
    if (!common(core.processors, bound).empty() && !common(core.processors, node->processors).empty()) {
      cores.push_back(&core);
    }
  }
  if (cores.size() < 2) {
    placement.why += "; background threads share the only core";
    return placement;
  }
  const std::size_t last = std::max<std::size_t>(1, cores.size() / kCoresPerThreadCore);
  for (std::size_t i = cores.size() - last; i < cores.size(); ++i) {
    for (const unsigned processor : common(cores[i]->processors, bound)) {
      placement.threads.push_back(processor);
    }
  }
  std::sort(placement.threads.begin(), placement.threads.end());
  placement.why += "; background threads on processor";
  placement.why += placement.threads.size() > 1 ? "s" : "";
  for (const unsigned processor : placement.threads) {
    placement.why += " " + std::to_string(processor);
  }
  return placement;
}

Processors own_processors() {
  Processors processors;
  constexpr std::size_t kMost = 4096;
  std::vector<unsigned long> mask(kMost / (8 * sizeof(unsigned long)));
  const long bytes = ::syscall(SYS_sched_getaffinity, ::getpid(), mask.size() * sizeof(unsigned long), mask.data());
  for (std::size_t i = 0; bytes > 0 && i < static_cast<std::size_t>(bytes) * 8; ++i) {
    constexpr std::size_t kBits = 8 * sizeof(unsigned long);
    if ((mask[i / kBits] >> (i % kBits) & 1U) != 0) {
      processors.push_back(static_cast<unsigned>(i));
    }
  }
  return processors;
}

const Placement& own_placement() {
  static const Placement& placement = *new Placement([]() -> Placement {
    if (count_memory_nodes() < 2) {
      return place({}, {});
    }
    try {
      return place(read_topology(), own_processors(), environment("GRADWIRE_SOCKET_IFNAME").value_or(""));
    } catch (const Error& error) {
      return {.node = {}, .threads = {}, .most_ranks = 0, .why = std::string(error.what()) + ": nothing is bound"};
    }
  }());
  return placement;
}

void bind_thread(int thread, const Placement& placement) noexcept {
  if (placement.threads.empty()) {
    return;
  }
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(placement.threads.back() / kBits + 1);
  for (const unsigned processor : placement.threads) {
    mask[processor / kBits] |= 1UL << (processor % kBits);
  }
  (void)::syscall(SYS_sched_setaffinity, thread, mask.size() * sizeof(unsigned long), mask.data());
}

void bind_memory(const Placement& placement, void* data, std::size_t bytes) noexcept {
  if (!placement.node) {
    return;
  }
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, 16> mask{};  // 1,024 nodes, as many as a kernel may have
  if (*placement.node >= mask.size() * kBits) {
    return;
  }
  mask[*placement.node / kBits] = 1UL << (*placement.node % kBits);
  (void)::syscall(SYS_mbind, data, bytes, MPOL_PREFERRED, mask.data(), mask.size() * kBits, 0UL);
}

}  // namespace gradwire::memory
