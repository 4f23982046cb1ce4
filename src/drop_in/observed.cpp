#include "drop_in/observed.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gradwire::drop_in {
namespace {

using nlohmann::json;

json size_json(const ObservedTotals::Size& size) { return {size.calls, size.bytes, size.seconds, size.quick_seconds}; }

json sampled_json(const SampledValues& sampled) {
  return {sampled.samples,
          sampled.bytes,
          sampled.frame_bytes,
          sampled.encode_seconds,
          sampled.decode_seconds,
          sampled.elements,
          sampled.zeroed,
          sampled.squared_error,
          sampled.squared_norm,
          sampled.small_squared_error,
          sampled.small_squared_norm};
}

SampledValues sampled_from(const json& from) {
  return {.samples = from.at(0),
          .bytes = from.at(1),
          .frame_bytes = from.at(2),
          .encode_seconds = from.at(3),
          .decode_seconds = from.at(4),
          .elements = from.at(5),
          .zeroed = from.at(6),
          .squared_error = from.at(7),
          .squared_norm = from.at(8),
          .small_squared_error = from.at(9),
          .small_squared_norm = from.at(10)};
}

json transfer_json(const std::optional<ObservedTotals::Transfer>& transfer) {
  return transfer ? json{transfer->dense_bytes, transfer->dense_seconds, transfer->frame_bytes, transfer->frame_seconds}
                  : json();
}

ObservedTotals totals_from(const json& from) {
  ObservedTotals totals;
  for (std::size_t i = 0; i < totals.sizes.size(); ++i) {
    const json& size = from.at(4).at(i);
    totals.sizes.at(i) = {.calls = size.at(0), .bytes = size.at(1), .seconds = size.at(2), .quick_seconds = size.at(3)};
  }
  totals.codec = from.at(5);
  totals.sampled = sampled_from(from.at(6));
  if (const json& transfer = from.at(7); !transfer.is_null()) {
    totals.transfer = {.dense_bytes = transfer.at(0),
                       .dense_seconds = transfer.at(1),
                       .frame_bytes = transfer.at(2),
                       .frame_seconds = transfer.at(3)};
  }
  return totals;
}

}  // namespace

void SampledValues::add(const SampledValues& other) {
  samples += other.samples;
  bytes += other.bytes;
  frame_bytes += other.frame_bytes;
  encode_seconds += other.encode_seconds;
  decode_seconds += other.decode_seconds;
  elements += other.elements;
  zeroed += other.zeroed;
  squared_error += other.squared_error;
  squared_norm += other.squared_norm;
  small_squared_error += other.small_squared_error;
  small_squared_norm += other.small_squared_norm;
}

void ObservedTotals::Size::add(const Size& other) {
  if (other.calls == 0) {
    return;
  }
  quick_seconds = calls == 0 ? other.quick_seconds : std::min(quick_seconds, other.quick_seconds);
  calls += other.calls;
  bytes += other.bytes;
  seconds += other.seconds;
}

void ObservedTotals::add(const ObservedTotals& other) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sizes.at(i).add(other.sizes.at(i));
  }
  codec = codec.empty() ? other.codec : codec;
  sampled.add(other.sampled);
  if (other.transfer && (!transfer || transfer->frame_seconds < other.transfer->frame_seconds)) {
    transfer = other.transfer;
  }
}

std::uint64_t ObservedTotals::calls() const {
  std::uint64_t sum = 0;
  for (const Size& size : sizes) {
    sum += size.calls;
  }
  return sum;
}

double ObservedTotals::bytes() const {
  double sum = 0;
  for (const Size& size : sizes) {
    sum += size.bytes;
  }
  return sum;
}

double ObservedTotals::seconds() const {
  double sum = 0;
  for (const Size& size : sizes) {
    sum += size.seconds;
  }
  return sum;
}

void Observed::add(const Observed& other) {
  for (const auto& [what, totals] : other.classes) {
    classes[what].add(totals);
  }
  for (const auto& [name, host] : other.hosts) {
    hosts[name].ranks += host.ranks;
    hosts[name].cores = host.cores;
  }
  run_seconds = std::max(run_seconds, other.run_seconds);
  cost_seconds = std::max(cost_seconds, other.cost_seconds);
}

std::string Observed::to_text() const {
  json rows = json::array();
  for (const auto& [what, totals] : classes) {
    json sizes = json::array();
    for (const ObservedTotals::Size& size : totals.sizes) {
      sizes.push_back(size_json(size));
    }
    rows.push_back({static_cast<int>(what.function), static_cast<int>(what.dtype), what.size, what.communicator_size,
                    sizes, totals.codec, sampled_json(totals.sampled), transfer_json(totals.transfer)});
  }
  json all_hosts = json::object();
  for (const auto& [name, host] : hosts) {
    all_hosts[name] = {host.ranks, host.cores};
  }
  return json{{"rows", rows}, {"hosts", all_hosts}, {"run", run_seconds}, {"cost", cost_seconds}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

Observed Observed::from_text(const std::string& text) {
  const json root = json::parse(text);
  Observed observed;
  for (const json& row : root.at("rows")) {
    const ObservedClass what{.function = Function{row.at(0).get<std::uint8_t>()},
                             .dtype = DType{row.at(1).get<std::uint8_t>()},
                             .size = row.at(2),
                             .communicator_size = row.at(3)};
    observed.classes[what].add(totals_from(row));
  }
  for (const auto& [name, host] : root.at("hosts").items()) {
    observed.hosts[name] = {.ranks = host.at(0), .cores = host.at(1)};
  }
  observed.run_seconds = root.at("run");
  observed.cost_seconds = root.at("cost");
  return observed;
}

}  // namespace gradwire::drop_in
