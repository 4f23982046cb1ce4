// The ranks of a table as state machines, with messages that a seeded scheduler delivers in random order. There are no
// threads and no clocks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "table/service.hpp"

namespace gradwire::table {

using Ids = std::vector<std::uint64_t>;

inline TableOptions options(std::uint64_t staleness) {
  return {.rows = 1000, .width = 1, .learning_rate = 1, .staleness = staleness};
}

/// Services and the messages between them: first in, first out for each pair, except that replies may overtake others.
class World {
 public:
  World(int ranks, TableOptions o, unsigned seed) : options(std::move(o)), random(seed) {
    for (int rank = 0; rank < ranks; ++rank) {
      services.push_back(std::make_unique<Service>(rank, ranks, options));
    }
    queues.resize(services.size() * services.size());
  }

  Service& operator[](int rank) { return *services[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int ranks() const { return static_cast<int>(services.size()); }

  /// Delivers one message of a random pair; returns whether there was one, or rows are on their way from a file.
  bool deliver() {
    bool reads = false;
    for (const auto& service : services) {
      if (service->reads() && random() % 2 == 0) {
        service->advance_reads();
      }
      reads = reads || service->reads();
    }
    collect();
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < queues.size(); ++i) {
      if (!queues[i].empty()) {
        waiting.push_back(i);
      }
    }
    if (waiting.empty()) {
      return reads;
    }
    const std::size_t pair = waiting[random() % waiting.size()];
    auto& queue = queues[pair];
    const auto is_reply = [](const TableMessage& m) { return m.head.kind == MessageKind::reply; };
    const auto reply = random() % 2 == 0 ? queue.end() : std::find_if(queue.begin(), queue.end(), is_reply);
    const auto next = reply == queue.end() ? queue.begin() : reply;
    const TableMessage message = std::move(*next);
    queue.erase(next);
    services[pair % services.size()]->take(static_cast<int>(pair / services.size()), message);
    return true;
  }
  void deliver_all() {
    while (deliver()) {
    }
  }
  std::vector<float> pull(int rank, const Ids& ids) {
    const auto pull = (*this)[rank].start_pull(ids, false);
    deliver_all();
    EXPECT_TRUE(pull->done());
    return std::vector<float>(pull->rows.begin(), pull->rows.end());
  }
  void push(int rank, std::uint64_t id, float gradient) {
    (*this)[rank].write(MessageKind::push, std::span(&id, 1), &gradient);
  }

  TableOptions options;
  std::mt19937 random;
  std::vector<std::unique_ptr<Service>> services;
  std::vector<std::deque<TableMessage>> queues;
  std::uint64_t bytes = 0, messages = 0;  // bytes and messages that have left

 private:
  void collect() {
    for (std::size_t rank = 0; rank < services.size(); ++rank) {
      for (Service::Envelope& envelope : services[rank]->take_outbox()) {
        ++messages;
        bytes += bytes_of(envelope.message);
        queues[rank * services.size() + static_cast<std::size_t>(envelope.peer)].push_back(std::move(envelope.message));
      }
    }
  }
};

/// Returns the first id that `owner` holds, starting at `from`.
inline std::uint64_t id_of(World& world, int owner, std::uint64_t from = 0) {
  while (world[0].owner(from) != owner) {
    ++from;
  }
  return from;
}

}  // namespace gradwire::table
