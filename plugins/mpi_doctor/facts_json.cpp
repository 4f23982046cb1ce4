// Facts as JSON and back.
#include <nlohmann/json.hpp>

#include "plugins/mpi_doctor/facts.hpp"

namespace gradwire::doctor {
namespace {

using nlohmann::json;

template <class Value>
void take(const json& from, const char* name, Value& into) {
  if (const auto found = from.find(name); found != from.end()) {
    found->get_to(into);
  }
}

}  // namespace

std::string to_json(const Facts& facts) {
  json preloads = json::array();
  for (const PreloadFile& file : facts.preloads) {
    preloads.push_back({{"library", file.name}, {"path", file.path}, {"fingerprint", file.fingerprint}});
  }
  json interfaces = json::array();
  for (const Interface& one : facts.interfaces) {
    interfaces.push_back(
        {{"name", one.name}, {"mtu", one.mtu}, {"megabits", one.megabits}, {"physical", one.physical}});
  }
  const json text{
      {"rank", facts.rank},
      {"node", facts.node},
      {"host", facts.host},
      {"gradwire", facts.version},
      {"build", facts.build},
      {"mpi", facts.mpi},
      {"threads", facts.threads},
      {"preloads", preloads},
      {"policy",
       {{"path", facts.policy.path}, {"fingerprint", facts.policy.fingerprint}, {"error", facts.policy.error}}},
      {"key", {{"check", facts.key.check}, {"error", facts.key.error}}},
      {"addresses", facts.addresses},
      {"variables", facts.variables},
      {"environment_errors", facts.environment_errors},
      {"unwritable", facts.unwritable},
      {"cores", facts.cores},
      {"mask", facts.mask},
      {"cpu_limit", {{"cores", facts.cpu.cores}, {"group", facts.cpu.group}}},
      {"numa_nodes", facts.numa_nodes},
      {"huge_pages", facts.huge_pages},
      {"memory", facts.memory},
      {"memory_available", facts.memory_available},
      {"shm", facts.shm},
      {"shm_free", facts.shm_free},
      {"tcp_send", facts.tcp_send},
      {"tcp_receive", facts.tcp_receive},
      {"interfaces", interfaces},
      {"clock_offset", facts.clock_offset},
      {"clock_error", facts.clock_error},
      {"errors", facts.errors}};
  return text.dump(-1, ' ', false, json::error_handler_t::replace);  // a variable may hold any bytes
}

Facts facts_from_json(const std::string& text) {
  const json from = json::parse(text);
  Facts facts;
  take(from, "rank", facts.rank);
  take(from, "node", facts.node);
  take(from, "host", facts.host);
  take(from, "gradwire", facts.version);
  take(from, "build", facts.build);
  take(from, "mpi", facts.mpi);
  take(from, "threads", facts.threads);
  for (const json& one : from.value("preloads", json::array())) {
    facts.preloads.push_back(
        {.name = one.value("library", ""), .path = one.value("path", ""), .fingerprint = one.value("fingerprint", "")});
  }
  const json policy = from.value("policy", json::object());
  facts.policy = {.path = policy.value("path", ""),
                  .fingerprint = policy.value("fingerprint", ""),
                  .error = policy.value("error", "")};
  const json key = from.value("key", json::object());
  facts.key = {.check = key.value("check", ""), .error = key.value("error", "")};
  facts.addresses = from.value("addresses", std::vector<std::string>());
  take(from, "variables", facts.variables);
  take(from, "environment_errors", facts.environment_errors);
  take(from, "unwritable", facts.unwritable);
  take(from, "cores", facts.cores);
  take(from, "mask", facts.mask);
  const json cpu = from.value("cpu_limit", json::object());
  facts.cpu = {.cores = cpu.value("cores", 0.0), .group = cpu.value("group", "")};
  take(from, "numa_nodes", facts.numa_nodes);
  take(from, "huge_pages", facts.huge_pages);
  take(from, "memory", facts.memory);
  take(from, "memory_available", facts.memory_available);
  take(from, "shm", facts.shm);
  take(from, "shm_free", facts.shm_free);
  take(from, "tcp_send", facts.tcp_send);
  take(from, "tcp_receive", facts.tcp_receive);
  for (const json& one : from.value("interfaces", json::array())) {
    facts.interfaces.push_back({.name = one.value("name", ""),
                                .mtu = one.value("mtu", 0),
                                .megabits = one.value("megabits", 0),
                                .physical = one.value("physical", false)});
  }
  take(from, "clock_offset", facts.clock_offset);
  take(from, "clock_error", facts.clock_error);
  take(from, "errors", facts.errors);
  return facts;
}

}  // namespace gradwire::doctor
