// The collective parts of a table: snapshots, and the exchange of texts.
#include <algorithm>
#include <utility>

#include "table/service.hpp"

namespace gradwire::table {
namespace {

std::string missing(const std::vector<bool>& here) {
  std::string ranks;
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    if (!here[rank]) {
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  return ranks;
}

}  // namespace

std::uint64_t Service::start_cut() {
  const std::uint64_t number = next_.cut++;
  TableMessage message;
  message.head.kind = MessageKind::cut;
  message.head.number = number;
  send_all(message);
  mark_cut(number, rank_);
  return number;
}

/// The first mark makes the copy; from there on, pushes of ranks that have not sent their mark go to both. So the
/// snapshot has each rank's pushes up to its own call (Chandy and Lamport, TOCS 1985).
void Service::mark_cut(std::uint64_t number, int from) {
  auto at = cuts_.find(number);
  if (at == cuts_.end()) {
    at = cuts_
             .emplace(number, Cut{on_rows([this] { return store_.shard().copy(); }),
                                  std::vector<bool>(static_cast<std::size_t>(world_size_))})
             .first;
  }
  at->second.marked[static_cast<std::size_t>(from)] = true;
}

std::shared_ptr<const Shard> Service::finished_cut(std::uint64_t number) {
  const auto at = cuts_.find(number);
  if (!missing(at->second.marked).empty()) {
    return nullptr;
  }
  on_rows([&] { at->second.shard.give_back(); });
  auto shard = std::make_shared<const Shard>(std::move(at->second.shard));
  cuts_.erase(at);
  return shard;
}

std::string Service::missing_in_cut(std::uint64_t number) const { return missing(cuts_.at(number).marked); }

Service::Exchange Service::start_exchange(Topic topic, const std::string& mine) {
  const auto count = static_cast<std::uint64_t>(topic);
  const Exchange exchange{count, next_exchange_[count]++};
  TableMessage message;
  message.head.kind = MessageKind::text;
  message.head.count = count;
  message.head.number = exchange.second;
  const std::string text = mine.substr(0, MessageLimits::kText);
  wire::put(message.payload, text.data(), text.size());
  send_all(message);
  auto& texts = exchanges_[exchange];
  texts.resize(static_cast<std::size_t>(world_size_));
  texts[static_cast<std::size_t>(rank_)] = text;
  return exchange;
}

std::string Service::missing_in_exchange(const Exchange& exchange) const {
  std::vector<bool> here;
  for (const auto& text : exchanges_.at(exchange)) {
    here.push_back(text.has_value());
  }
  return missing(here);
}

std::vector<std::string> Service::take_exchanged(const Exchange& exchange) {
  std::vector<std::string> texts;
  auto node = exchanges_.extract(exchange);
  for (auto& text : node.mapped()) {
    texts.push_back(std::move(*text));
  }
  return texts;
}

}  // namespace gradwire::table
