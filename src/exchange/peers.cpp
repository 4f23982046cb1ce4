#include "exchange/peers.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "exchange/stream/message_group.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::uint64_t kMostTextBytes = 1ULL << 30;  // a larger text of one rank means that the size is damaged

}  // namespace

// NOLINTBEGIN(performance-unnecessary-value-param): overriding functions keep the value
Peers::Messages Peers::all_to_all(Messages /*to*/, std::uint32_t /*call*/, const std::string& what) {
  throw Error(ErrorCode::unsupported, what + ": not over device memory");
}

Peers::Messages Peers::all_to_all(Messages /*to*/, std::span<const std::uint64_t> /*sizes*/, const std::string& what) {
  throw Error(ErrorCode::unsupported, what + ": not over device memory");
}
// NOLINTEND(performance-unnecessary-value-param)

std::string bytes_of(const std::vector<double>& numbers) {
  std::string text(numbers.size() * sizeof(double), '\0');
  std::memcpy(text.data(), numbers.data(), text.size());
  return text;
}

std::vector<std::vector<double>> numbers_of(const std::vector<std::string>& texts) {
  std::vector<std::vector<double>> all;
  for (const std::string& text : texts) {
    std::vector<double>& numbers = all.emplace_back(text.size() / sizeof(double));
    std::memcpy(numbers.data(), text.data(), numbers.size() * sizeof(double));
  }
  return all;
}

std::vector<std::vector<double>> gather_numbers(Peers& peers, const std::vector<double>& mine, const std::string& what,
                                                Sizes sizes) {
  std::vector<std::vector<double>> all = numbers_of(peers.all_gather(bytes_of(mine), what));
  for (std::size_t rank = 0; rank < all.size() && sizes == Sizes::same; ++rank) {
    if (all[rank].size() != mine.size()) {
      throw Error(ErrorCode::mismatch, what + ": rank " + std::to_string(rank) + " sent " +
                                           std::to_string(all[rank].size()) + " numbers where this rank has " +
                                           std::to_string(mine.size()) + "; run the same version on every rank");
    }
  }
  return all;
}

std::vector<std::uint32_t> nodes_by_host(Peers& peers, const std::string& host) {
  const std::vector<std::string> hosts = peers.all_gather(host, "the exchange of hosts");
  std::vector<std::uint32_t> nodes;
  nodes.reserve(hosts.size());
  for (const std::string& one : hosts) {  // the number of a node is that of its first rank
    nodes.push_back(static_cast<std::uint32_t>(std::find(hosts.begin(), hosts.end(), one) - hosts.begin()));
  }
  return nodes;
}

std::vector<std::string> DevicePeers::exchange(const std::string& mine, std::span<const std::uint64_t> sizes) {
  using Queue = StreamBackend::Queue;
  StreamBackend& backend = device_.backend();
  const auto self = static_cast<std::size_t>(backend.rank());
  const std::uint64_t total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  std::byte* memory = backend.acquire(total);
  std::vector<std::span<std::byte>> parts;
  for (std::uint64_t offset = 0; const std::uint64_t bytes : sizes) {
    parts.emplace_back(memory + offset, bytes);
    offset += bytes;
  }
  device_.upload(parts[self].data(), std::as_bytes(std::span(mine)));
  backend.wait(Queue::communication, backend.record(Queue::compute));
  MessageGroup group(backend);
  for (std::size_t peer = 0; peer < parts.size(); ++peer) {
    if (peer != self && !parts[self].empty()) {
      backend.send(parts[self], static_cast<int>(peer));
    }
    if (peer != self && !parts[peer].empty()) {
      backend.receive(parts[peer], static_cast<int>(peer));
    }
  }
  group.end();
  backend.wait(Queue::compute, backend.record(Queue::communication));
  std::string all(total, '\0');
  device_.download(std::as_writable_bytes(std::span(all)), memory, timeout_);
  backend.release(memory);
  device_.poll();  // throws where messages were aborted: the device then went on with arbitrary bytes
  std::vector<std::string> texts;
  for (std::uint64_t offset = 0; const std::uint64_t bytes : sizes) {
    texts.push_back(all.substr(offset, bytes));
    offset += bytes;
  }
  return texts;
}

std::vector<std::string> DevicePeers::all_gather(const std::string& mine, const std::string& what) {
  const auto world = static_cast<std::size_t>(device_.backend().world_size());
  if (world == 1) {
    return {mine};
  }
  const CurrentDevice current(device_);
  constexpr std::size_t kDigits = 16;
  std::string size = std::to_string(mine.size());
  size.insert(0, kDigits - size.size(), '0');
  try {
    const auto texts = exchange(size, std::vector<std::uint64_t>(world, kDigits));
    std::vector<std::uint64_t> sizes;
    for (const std::string& text : texts) {
      const bool digits = std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
      sizes.push_back(digits ? std::stoull(text) : kMostTextBytes + 1);
      if (sizes.back() > kMostTextBytes) {
        throw Error(ErrorCode::corrupt, "rank " + std::to_string(sizes.size() - 1) + " sent no size");
      }
    }
    return exchange(mine, sizes);
  } catch (const Error& error) {
    throw Error(error.code(), what + ": " + error.what(), error.cause());
  }
}

}  // namespace gradwire::exchange
