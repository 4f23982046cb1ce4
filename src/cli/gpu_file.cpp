#include "cli/gpu_file.hpp"

#include <chrono>

#include "base/read_file.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "policy/policy_values.hpp"

namespace gradwire::cli {
namespace {

constexpr std::size_t kMaxGpuFileBytes = 1ULL << 20;
constexpr std::size_t kMaxClusterNameBytes = 100;
constexpr double kLeastRate = 1e3;

bool reaches(const exchange::LinkCost& link) { return link.bytes_per_second != exchange::LinkCost{}.bytes_per_second; }

class GpuReader : private policy::PolicyValues {
 public:
  GpuReader(std::string_view text, const std::string& source)
      : policy::PolicyValues(source), text_(text), source_(source) {}

  exchange::DeviceCluster read() {
    check_text(text_, kMaxGpuFileBytes, "a GPU file");
    const toml::parse_result result = toml::parse(text_, source_);
    if (!result) {
      fail_toml(text_, result.error());
    }
    cluster_.name = std::filesystem::path(source_).stem().string();
    read_table(result.table(), "at the top of the file",
               {{"version", [this](const toml::node& node) { read_version(node); }},
                {"name", [this](const toml::node& node) { read_name(node); }},
                {"nodes", [this](const toml::node& node) { cluster_.nodes = read_cards(node, "nodes"); }},
                {"cards", [this](const toml::node& node) { cluster_.cards = read_cards(node, "cards"); }},
                {"inside", [this](const toml::node& node) { read_inside(table(node, "inside")); }},
                {"between", [this](const toml::node& node) { read_between(table(node, "between")); }},
                {"nccl", [this](const toml::node& node) { read_nccl(table(node, "nccl")); }},
                {"card", [this](const toml::node& node) { read_card(table(node, "card")); }},
                {"host", [this](const toml::node& node) { read_host(table(node, "host")); }},
                {"fused", [this](const toml::node& node) { read_fused(table(node, "fused")); }}});
    check_whole();
    return std::move(cluster_);
  }

 private:
  const toml::table& table(const toml::node& node, const char* name) const {
    if (!node.is_table()) {
      fail(node, std::string(name) + " is a table; write [" + name + "] on a line of its own, and its keys below");
    }
    return *node.as_table();
  }

  void read_version(const toml::node& node) const {
    if (node.value_or(std::int64_t{0}) != 1) {
      fail(node, "this build reads version 1 of the GPU format; write version = 1");
    }
  }

  void read_name(const toml::node& node) {
    cluster_.name = read_string(node, "name", "a string");
    if (cluster_.name.empty() || cluster_.name.size() > kMaxClusterNameBytes) {
      fail(node, "name has " + std::to_string(cluster_.name.size()) + " bytes; write 1 to " +
                     std::to_string(kMaxClusterNameBytes));
    }
  }

  int read_cards(const toml::node& node, std::string_view key) const {
    return static_cast<int>(read_integer(node, key, "an integer such as 8", 1, kMostCards,
                                         "a number from 1 to " + std::to_string(kMostCards)));
  }

  void set_seconds(const toml::node& node, std::string_view key, double& seconds) const {
    const std::string text = read_string(node, key, R"(a duration such as "14us")");
    seconds = read_parsed(node, [&] { return std::chrono::duration<double>(parse_duration(text)).count(); });
  }

  void set_rate(const toml::node& node, std::string_view key, double& rate) const {
    const std::string text = read_string(node, key, R"(a rate such as "340GB/s")");
    rate = read_parsed(node, [&] { return parse_rate(text); });
    if (rate < kLeastRate) {
      fail(node, std::string(key) + " is " + text + "; write a rate from 1kB/s on");
    }
  }

  Handler seconds(std::string_view key, double& value) {
    return [this, key, &value](const toml::node& node) { set_seconds(node, key, value); };
  }
  Handler rate(std::string_view key, double& value) {
    return [this, key, &value](const toml::node& node) { set_rate(node, key, value); };
  }

  void read_inside(const toml::table& keys) {
    read_table(
        keys, "in [inside]",
        {{"rate", rate("rate", cluster_.inside.bytes_per_second)},
         {"latency", seconds("latency", cluster_.inside.latency_seconds)},
         {"peer_access", [this](const toml::node& node) { cluster_.peer_access = read_bool(node, "peer_access"); }}});
    need_rate(keys, cluster_.inside, "inside", "a card reaches to the others of its node, such as \"340GB/s\"");
  }

  void read_between(const toml::table& keys) {
    read_table(keys, "in [between]",
               {{"rate", rate("rate", cluster_.between.bytes_per_second)},
                {"latency", seconds("latency", cluster_.between.latency_seconds)},
                {"shared", [this](const toml::node& node) { shared_ = read_bool(node, "shared"); }}});
    need_rate(keys, cluster_.between, "between", "a card (shared = true: a node) reaches to other nodes");
  }

  void read_nccl(const toml::table& keys) {
    read_table(keys, "in [nccl]",
               {{"rate", rate("rate", cluster_.nccl.bytes_per_second)},
                {"latency", seconds("latency", cluster_.nccl.latency_seconds)},
                {"inside_rate", rate("inside_rate", cluster_.nccl_inside.bytes_per_second)},
                {"inside_latency", seconds("inside_latency", cluster_.nccl_inside.latency_seconds)}});
    need_rate(keys, cluster_.nccl, "nccl", "its all-reduce reaches, as nccl-tests counts it (busbw)");
  }

  void read_card(const toml::table& keys) {
    exchange::CardCost& card = cluster_.card;
    read_table(keys, "in [card]",
               {{"copy", rate("copy", card.bytes_per_second)},
                {"tiles",
                 [&](const toml::node& node) {
                   card.tiles_at_once = static_cast<double>(read_integer(
                       node, "tiles", "an integer such as 528", 1, 1 << 20, "a number of tiles that run at once"));
                 }},
                {"wave", seconds("wave", card.wave_seconds)},
                {"least_kernel", seconds("least_kernel", card.least_kernel_seconds)}});
  }

  void read_host(const toml::table& keys) {
    exchange::EnqueueCost& host = cluster_.host;
    read_table(keys, "in [host]",
               {{"kernel", seconds("kernel", host.kernel)},
                {"group", seconds("group", host.group)},
                {"message", seconds("message", host.message)},
                {"event", seconds("event", host.event)}});
  }

  void read_fused(const toml::table& keys) {
    exchange::FusedCost& fused = cluster_.fused;
    read_table(keys, "in [fused]",
               {{"start", seconds("start", fused.start_seconds)},
                {"link_share",
                 [&](const toml::node& node) {
                   const std::string text = read_string(node, "link_share", R"(a share such as "88%")");
                   fused.link_share = read_parsed(node, [&] { return parse_fraction(text); });
                 }},
                {"frames", rate("frames", fused.frame_bytes_per_second)}});
  }

  void need_rate(const toml::table& keys, const exchange::LinkCost& link, const std::string& name,
                 const std::string& what) const {
    if (!reaches(link)) {
      fail(policy::place_of(keys.source()), "[" + name + "] has no rate; write the rate that " + what);
    }
  }

  void check_whole() {
    const auto missing = [&](const std::string& what) { fail(policy::SourceLocation{}, what); };
    if (cluster_.ranks() < 2 || cluster_.nodes > kMostCards / cluster_.cards) {
      missing("nodes x cards is " + std::to_string(cluster_.nodes) + " x " + std::to_string(cluster_.cards) +
              "; write 2 to " + std::to_string(kMostCards) + " cards in all");
    }
    if (cluster_.cards > 1 && !reaches(cluster_.inside)) {
      missing("a node has " + std::to_string(cluster_.cards) + " cards, but there is no [inside]; write it, with rate");
    }
    if (cluster_.nodes > 1 && !reaches(cluster_.between)) {
      missing("there are " + std::to_string(cluster_.nodes) + " nodes, but no [between]; write it, with rate");
    }
    if (!reaches(cluster_.nccl)) {
      missing("there is no [nccl], with which all is compared; write it, with rate and latency");
    }
    if (shared_) {
      cluster_.between.bytes_per_second /= cluster_.cards;
    }
    if (!reaches(cluster_.nccl_inside)) {
      cluster_.nccl_inside.bytes_per_second = cluster_.inside.bytes_per_second;
    }
    if (cluster_.nccl_inside.latency_seconds == 0) {
      cluster_.nccl_inside.latency_seconds = cluster_.inside.latency_seconds;
    }
  }

  std::string_view text_;
  const std::string& source_;
  exchange::DeviceCluster cluster_;
  bool shared_ = false;
};

}  // namespace

exchange::DeviceCluster load_gpu_file(const std::filesystem::path& file) {
  return parse_gpu_file(read_file(file, kMaxGpuFileBytes, "GPU file", Pipes::read), file.string());
}

exchange::DeviceCluster parse_gpu_file(std::string_view text, const std::string& source) {
  return GpuReader(text, source).read();
}

}  // namespace gradwire::cli
