// Chooses the queue that may run next, and runs groups.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "codec/codec.hpp"
#include "gradwire/error.hpp"
#include "tests/support/simulated_codecs.hpp"
#include "tests/support/simulated_device.hpp"

namespace gradwire::test {

std::string name_of(exchange::StreamBackend::Queue queue) {
  switch (queue) {
    case exchange::StreamBackend::Queue::compute: return "compute";
    case exchange::StreamBackend::Queue::communication: return "communication";
    case exchange::StreamBackend::Queue::node: break;
  }
  return "node";
}

std::string describe(const std::vector<SimulatedMessage>& messages) {
  std::string text;
  for (const SimulatedMessage& message : messages) {
    switch (message.kind) {
      case SimulatedMessage::Kind::send: text += " ->"; break;
      case SimulatedMessage::Kind::receive: text += " <-"; break;
      case SimulatedMessage::Kind::all_reduce: text += " all_reduce "; break;
      case SimulatedMessage::Kind::node_sum: text += " node_sum "; break;
      case SimulatedMessage::Kind::node_gather: text += " node_gather "; break;
    }
    text += (message.peer < 0 ? "" : std::to_string(message.peer) + ":") + std::to_string(message.bytes);
  }
  return text;
}

SimulatedWorld::SimulatedWorld(int world_size, unsigned seed)
    : node_sums(static_cast<std::size_t>(world_size)), random_(seed), nodes_({}, world_size) {
  for (int rank = 0; rank < world_size; ++rank) {
    devices_.push_back(std::make_unique<SimulatedDevice>(*this, rank, world_size));
  }
}

void SimulatedWorld::run() {
  if (!late_fault_.empty()) {
    throw Error(ErrorCode::internal, late_fault_);
  }
  for (;;) {
    std::vector<std::pair<SimulatedDevice*, Queue>> ready;
    bool left = false;
    for (const auto& device : devices_) {
      for (const Queue queue : {Queue::compute, Queue::communication, Queue::node}) {
        left = left || !device->queue(queue).empty();
        if (runnable(*device, queue)) {
          ready.emplace_back(device.get(), queue);
        }
      }
    }
    if (ready.empty()) {
      if (left) {
        throw Error(ErrorCode::internal, "deadlock:\n" + state());
      }
      return;
    }
    const auto [device, queue] = ready[random_() % ready.size()];
    step(*device, queue);
  }
}

bool SimulatedWorld::runnable(SimulatedDevice& device, Queue queue) {
  if (device.queue(queue).empty()) {
    return false;
  }
  const SimulatedDevice::Operation& operation = device.queue(queue).front();
  switch (operation.kind) {
    case SimulatedDevice::Kind::wait: return device.reached_[operation.event];
    case SimulatedDevice::Kind::group: return !partners(device.rank(), queue).empty();
    default: return true;
  }
}

void SimulatedWorld::step(SimulatedDevice& device, Queue queue) {
  SimulatedDevice::Operation& operation = device.queue(queue).front();
  switch (operation.kind) {
    case SimulatedDevice::Kind::group: run_group(partners(device.rank(), queue), queue); return;
    case SimulatedDevice::Kind::record: device.reached_[operation.event] = true; break;
    case SimulatedDevice::Kind::work: operation.work(); break;
    case SimulatedDevice::Kind::wait: break;
  }
  device.queue(queue).pop_front();
}

// Returns the ranks of a node once all have reached the same collective.
std::vector<int> SimulatedWorld::neighbours(int rank) {
  const auto& mine = device(rank).queue(Queue::node).front().messages[0];
  const std::vector<int>& ranks = nodes_.members(nodes_.node_of(rank));
  for (const int other : ranks) {
    const auto& queue = device(other).queue(Queue::node);
    if (queue.empty() || queue.front().kind != SimulatedDevice::Kind::group || queue.front().messages.empty() ||
        queue.front().messages[0].kind != mine.kind) {
      return {};
    }
  }
  return ranks;
}

std::vector<int> SimulatedWorld::partners(int rank, Queue of) {
  if (of == Queue::node) {
    return neighbours(rank);
  }
  std::vector<int> ranks{rank};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& queue = device(ranks[i]).queue(Queue::communication);
    if (queue.empty() || queue.front().kind != SimulatedDevice::Kind::group) {
      return {};
    }
    for (const SimulatedMessage& message : queue.front().messages) {
      for (int peer = 0; peer < static_cast<int>(devices_.size()); ++peer) {
        const bool talks = message.kind == SimulatedMessage::Kind::all_reduce || message.peer == peer;
        if (talks && std::find(ranks.begin(), ranks.end(), peer) == ranks.end()) {
          ranks.push_back(peer);
        }
      }
    }
  }
  for (const int from : ranks) {
    for (const int to : ranks) {
      if (messages(from, to, SimulatedMessage::Kind::send).empty() !=
          messages(to, from, SimulatedMessage::Kind::receive).empty()) {
        return {};  // the other rank must first run groups with other ranks
      }
    }
  }
  return ranks;
}

// Returns the messages for a peer in the group at the head of a rank's queue.
std::vector<SimulatedMessage> SimulatedWorld::messages(int rank, int peer, SimulatedMessage::Kind kind) {
  const auto& all = device(rank).queue(Queue::communication).front().messages;
  std::vector<SimulatedMessage> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [&](const SimulatedMessage& message) { return message.kind == kind && message.peer == peer; });
  return some;
}

// Messages between two ranks match in their order and must have the same size, as in NCCL.
void SimulatedWorld::run_group(const std::vector<int>& ranks, Queue queue) {
  if (queue == Queue::node) {
    run_in_node(ranks);
  } else if (device(ranks[0]).queue(queue).front().messages[0].kind == SimulatedMessage::Kind::all_reduce) {
    run_all_reduce(ranks);
  } else {
    std::vector<std::pair<SimulatedMessage, SimulatedMessage>> pairs;
    for (const int from : ranks) {
      for (const int to : ranks) {
        const auto sent = messages(from, to, SimulatedMessage::Kind::send);
        const auto received = messages(to, from, SimulatedMessage::Kind::receive);
        if (!std::equal(sent.begin(), sent.end(), received.begin(), received.end(),
                        [](const auto& a, const auto& b) { return a.bytes == b.bytes; })) {
          throw Error(ErrorCode::internal, "groups do not fit: rank " + std::to_string(from) + " sends" +
                                               describe(sent) + ", rank " + std::to_string(to) + " receives" +
                                               describe(received) + "\n" + state());
        }
        for (std::size_t i = 0; i < sent.size(); ++i) {
          pairs.emplace_back(sent[i], received[i]);
        }
      }
    }
    std::shuffle(pairs.begin(), pairs.end(), random_);
    for (const auto& [send, receive] : pairs) {
      std::memcpy(receive.memory, send.memory, send.bytes);
    }
  }
  for (const int rank : ranks) {
    device(rank).queue(queue).pop_front();
  }
}

void SimulatedWorld::run_all_reduce(const std::vector<int>& ranks) {
  std::vector<SimulatedMessage> all;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    all.push_back(device(rank).queue(Queue::communication).front().messages[0]);
    if (all[0].kind != all.back().kind || all[0].bytes != all.back().bytes || all[0].dtype != all.back().dtype) {
      throw Error(ErrorCode::internal, "native sums do not fit\n" + state());
    }
  }
  const DType dtype = all[0].dtype;
  const DType working = dtype == DType::f64 ? DType::f64 : DType::f32;
  const std::uint64_t count = all[0].bytes / element_bytes(dtype);
  std::vector<double> sum(count);
  std::vector<double> term(count);
  const codec::Working type = working == DType::f64 ? codec::Working::f64 : codec::Working::f32;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    run_convert(all[rank].memory, dtype, rank == 0 ? sum.data() : term.data(), working, count, 1, 1);
    if (rank > 0) {
      codec::add(type, sum.data(), term.data(), count);
    }
  }
  for (const SimulatedMessage& message : all) {
    run_convert(sum.data(), working, message.memory, dtype, count, 1, 1);
  }
}

void SimulatedWorld::run_in_node(const std::vector<int>& ranks) {
  std::vector<SimulatedMessage> parts;
  for (const int rank : ranks) {
    parts.push_back(device(rank).queue(Queue::node).front().messages[0]);
    const SimulatedMessage& part = parts.back();
    if (part.bytes != parts[0].bytes || part.dtype != parts[0].dtype || part.rest != parts[0].rest) {
      throw Error(ErrorCode::internal, "collectives of a node do not fit\n" + state());
    }
  }
  if (parts[0].kind == SimulatedMessage::Kind::node_sum) {
    run_node_sum(ranks, parts);
    return;
  }
  const std::uint64_t bytes = parts[0].bytes;
  for (std::size_t from = 0; from < parts.size(); ++from) {
    for (std::size_t to = 0; to < parts.size(); ++to) {
      if (from != to) {
        std::memcpy(parts[to].memory + from * bytes, parts[from].memory + from * bytes, bytes);
      }
    }
  }
}

namespace {

/// Values as a library keeps them between two additions: of a dtype, but computed with in f32 or f64.
using Term = std::vector<double>;

Term added(const Term& a, const Term& b, DType dtype, std::uint64_t count) {
  const DType working = dtype == DType::f64 ? DType::f64 : DType::f32;
  Term sum = a;
  codec::add(working == DType::f64 ? codec::Working::f64 : codec::Working::f32, sum.data(), b.data(), count);
  Term rounded(sum.size());
  run_convert(sum.data(), working, rounded.data(), dtype, count, 1, 1);
  run_convert(rounded.data(), dtype, sum.data(), working, count, 1, 1);
  return sum;
}

Term added_up(std::vector<Term> terms, NodeOrder order, DType dtype, std::uint64_t count) {
  if (order == NodeOrder::descending) {
    std::reverse(terms.begin(), terms.end());
  }
  while (terms.size() > 1) {
    std::vector<Term> sums;
    for (std::size_t i = 0; order == NodeOrder::tree && i + 1 < terms.size(); i += 2) {
      sums.push_back(added(terms[i], terms[i + 1], dtype, count));
    }
    if (order == NodeOrder::tree && terms.size() % 2 != 0) {
      sums.push_back(terms.back());
    }
    if (order != NodeOrder::tree) {
      sums.push_back(added(terms[0], terms[1], dtype, count));
      sums.insert(sums.end(), terms.begin() + 2, terms.end());
    }
    terms = std::move(sums);
  }
  return terms[0];
}

}  // namespace

void SimulatedWorld::run_node_sum(const std::vector<int>& ranks, const std::vector<SimulatedMessage>& parts) {
  const DType dtype = parts[0].dtype;
  const DType working = dtype == DType::f64 ? DType::f64 : DType::f32;
  for (std::size_t place = 0; place < parts.size(); ++place) {
    const std::uint64_t bytes = parts[0].bytes + (place + 1 == parts.size() ? parts[0].rest : 0);
    const std::uint64_t count = bytes / element_bytes(dtype);
    std::vector<Term> terms(parts.size(), Term(count));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      run_convert(parts[i].from + place * parts[0].bytes, dtype, terms[i].data(), working, count, 1, 1);
    }
    NodeSum sum{dtype, std::vector<std::byte>(bytes)};
    const Term all = added_up(std::move(terms), order_, dtype, count);
    run_convert(all.data(), working, sum.bytes.data(), dtype, count, 1, 1);
    std::memcpy(parts[place].memory, sum.bytes.data(), bytes);
    node_sums[static_cast<std::size_t>(ranks[place])].push_back(std::move(sum));
  }
}

std::string SimulatedWorld::state() {
  std::string text;
  for (const auto& device : devices_) {
    for (const Queue queue : {Queue::compute, Queue::communication, Queue::node}) {
      const auto& operations = device->queue(queue);
      text += "  rank " + std::to_string(device->rank()) + " " + name_of(queue) + ": " +
              (operations.empty()
                   ? "empty"
                   : operations.front().what + ", " + std::to_string(operations.size() - 1) + " more behind it") +
              "\n";
    }
  }
  return text;
}

}  // namespace gradwire::test
