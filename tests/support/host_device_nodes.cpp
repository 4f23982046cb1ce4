// Sums and gathers inside nodes, as the library of a HostDevice makes them.
#include <algorithm>
#include <cstring>
#include <functional>

#include "tests/support/host_device.hpp"
#include "tests/support/simulated_codecs.hpp"

namespace gradwire::test {

// The sum goes in the descending order of places, unlike any other sum here.
void HostDevice::sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest) {
  const std::vector<int> ranks = nodes_.value().members(nodes_->node_of(rank()));
  const auto place = static_cast<std::size_t>(nodes_->place_of(rank()));
  const std::uint64_t count = each + (place + 1 == ranks.size() ? rest : 0);
  const std::uint64_t bytes = (ranks.size() * each + rest) * element_bytes(dtype);
  ++node_sums;
  push(kNode, "a sum inside a node", {{from, bytes, false}, {to, count * element_bytes(dtype), true}}, [=, this] {
    auto* mine = static_cast<std::byte*>(const_cast<void*>(from));  // NOLINT: it is only read
    std::vector<std::vector<std::byte>> all(ranks.size(), std::vector<std::byte>(bytes));
    std::vector<Message> messages;
    std::memcpy(all[place].data(), mine, bytes);
    for (std::size_t other = 0; other < ranks.size(); ++other) {
      if (other != place) {
        messages.push_back({true, mine, bytes, ranks[other]});
        messages.push_back({false, all[other].data(), bytes, ranks[other]});
      }
    }
    exchange(messages);
    std::vector<double> sum(count);
    std::vector<double> part(count);
    for (std::size_t left = all.size(); left > 0; --left) {
      run_convert(all[left - 1].data() + place * each * element_bytes(dtype), dtype, part.data(), DType::f64, count, 1,
                  1);
      std::transform(sum.begin(), sum.end(), part.begin(), sum.begin(), std::plus<>());
    }
    run_convert(sum.data(), DType::f64, to, dtype, count, 1, 1);
  });
}

void HostDevice::gather_in_node(void* all, std::uint64_t bytes) {
  const std::vector<int> ranks = nodes_.value().members(nodes_->node_of(rank()));
  const auto place = static_cast<std::size_t>(nodes_->place_of(rank()));
  push(kNode, "a gather inside a node", {{all, ranks.size() * bytes, true}}, [=, this] {
    auto* to = static_cast<std::byte*>(all);
    std::vector<Message> messages;
    for (std::size_t other = 0; other < ranks.size(); ++other) {
      if (other != place) {
        messages.push_back({true, to + place * bytes, bytes, ranks[other]});
        messages.push_back({false, to + other * bytes, bytes, ranks[other]});
      }
    }
    exchange(messages);
  });
}

}  // namespace gradwire::test
