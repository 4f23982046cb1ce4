// Lists the rows of the table: the trainings and their aims.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bench/records/campaign.hpp"

namespace gradwire::records {
namespace {

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Arguments policy(const std::string& name, const Arguments& more = {}) { return Arguments{"--policies", name} + more; }

constexpr int kMostSeeds = 5;

// Every tensor is compressed: with small ones as bf16, a model of this size would send 2 bits per element for these
// alone. If the second moment is frozen, the steps before use int8.
const Arguments kLive{"--small", "0", "--warm-up", "0.15", "--no-adam-guard"};
const Arguments kFrozen{"--small", "0", "--warm-up", "0.15"};
const Arguments kMomentum = kFrozen + Arguments{"--send-momentum"};
const Arguments kScale{"--precondition", "0.02"};
// Each shard is one frame, since a model of this size has few bytes for each header.
const Arguments kWhole{"--chunk", "57344"};
const std::string kTopk = "topk(1%)+int2";
// Local steps begin where the other rows' warm-up ends. They use plain averaging: with any outer momentum the loss
// after 2,000 steps was higher.
const Arguments kLocal{"--small", "0", "--local-from", "0.15", "--outer-lr", "1", "--outer-momentum", "0"};
// Sarfi et al., "Communication efficient LLM pre-training with SparseLoCo", 2025: residuals decay in place of an outer
// momentum.
const Arguments kSparse{"--second-hop", "topk(64/4096)+int2", "--decay", "0.95"};

bool is_frozen(const std::string& title) { return title.find("frozen") != std::string::npos; }

std::vector<Row> all_rows() {
  const auto other = [](const char* name, const std::string& title, Arguments arguments) {
    return Row{
        .name = name, .title = title, .arguments = std::move(arguments), .own = false, .frozen = is_frozen(title)};
  };
  const auto record = [](const char* name, const std::string& title, Arguments arguments, double bits, double loss) {
    return Row{name, title, std::move(arguments), kMostSeeds, true, bits, loss, is_frozen(title)};
  };
  return {
      record("dense", "dense", policy("dense"), NAN, NAN),
      record(kControl, "dense, second moment frozen", policy("dense+frozen", kFrozen), NAN, NAN),
      other("int8", "int8", policy("int8", kLive)),
      other("int4", "int4", policy("int4", kLive)),
      record("int4_preconditioned", "int4, preconditioned", policy("int4", kLive + kScale + kWhole), 4.08, 1.002),
      other("int2", "int2", policy("int2", kLive)),
      other("int2_frozen", "int2, frozen", policy("int2", kFrozen)),
      record("int2_preconditioned", "int2, frozen, preconditioned", policy("int2", kFrozen + kScale), 2.08, 1.004),
      record("topk_int2", kTopk + ", frozen, momentum, preconditioned", policy(kTopk, kMomentum + kScale), .25, 1.01),
      other("topk_int2_momentum", kTopk + ", frozen, momentum", policy(kTopk, kMomentum)),
      other("topk_int2_scale", kTopk + ", frozen, preconditioned", policy(kTopk, kFrozen + kScale)),
      other("topk_int2_frozen", kTopk + ", frozen", policy(kTopk, kFrozen)),
      record("local_int2", "every(16)+int2", policy("every(16)+int2", kLocal), .25, 1.01),
      record("local_sign", "every(54)+sign", policy("every(54)+sign", kLocal), .02, 1.01),
      other("sparse_loco", "every(30)+topk(64/4096)+int2", policy("every(30)+topk(64/4096)+int2", kLocal + kSparse)),
  };
}

}  // namespace

std::vector<Row> make_rows(const Settings& settings) {
  std::vector<Row> rows = all_rows();
  for (const std::string& name : settings.only) {
    if (std::none_of(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; })) {
      std::string names;
      for (const Row& row : rows) {
        names += (names.empty() ? "" : ", ") + row.name;
      }
      throw std::runtime_error("--only: \"" + name + "\" is none of " + names);
    }
  }
  if (!settings.only.empty()) {
    std::erase_if(rows, [&](const Row& row) {
      return row.name != "dense" && row.name != kControl &&
             std::find(settings.only.begin(), settings.only.end(), row.name) == settings.only.end();
    });
  }
  return rows;
}

}  // namespace gradwire::records
