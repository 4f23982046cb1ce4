// Lists the defaults of settings that only policies have, and of embedding tables.
#include "api/c_api.hpp"
#include "policy/sync.hpp"
#include "tests/defaults/defaults_text.hpp"

namespace gradwire::test {
namespace {

std::string list_text(bool empty) { return empty ? "none" : "some"; }
std::string count_text(double number, const std::string& of_zero) {
  return number == 0 ? of_zero : format_number(number);
}

void add(DefaultTable& table, const std::string& key, Default value) {
  table.rows.push_back({key, {std::move(value)}});
}

void add_keys_of_tensors(DefaultTable& table) {
  add(table, "`allow`, of `codec = \"auto\"`", {"bf16, int8", [] {
                                                  std::string all;
                                                  for (const CodecSpec& codec : Policy::automatic().defaults.allow) {
                                                    all += (all.empty() ? "" : ", ") + text(codec);
                                                  }
                                                  return all;
                                                }});
  add(table, "`decay`", of_policy("1", [](const Policy& all) { return format_number(all.defaults.decay); }));
  add(table, "`warmup`", of_policy("none", [](const Policy& all) { return list_text(all.defaults.warmup.empty()); }));
  add(table, "`max_error`", of_policy("none", [](const Policy& all) { return given(all.defaults.max_error, "none"); }));
  add(table, "`roles`", of_policy("gradients", [](const Policy& all) {
        return std::string(policy::to_string(all.defaults.roles.value_or(Roles::gradients)));
      }));
  add(table, "`sync`", of_policy("step", [](const Policy& all) { return policy::to_string(all.defaults.sync); }));
  add(table, "`lr` and `momentum` of `outer`", {"0.7, 0.9", [] {
                                                  const Sync::Outer outer;
                                                  return format_number(outer.learning_rate) + ", " +
                                                         format_number(outer.momentum);
                                                }});
  add(table, "`[[rule]]`", of_policy("none", [](const Policy& all) { return list_text(all.rules.empty()); }));
}

void add_keys_of_a_job(DefaultTable& table) {
  add(table, "`bytes` of `[bucket]`",
      of_policy("32MiB", [](const Policy& all) { return format_bytes(all.bucket_bytes); }));
  add(table, "`floor`", of_policy("64KiB", [](const Policy& all) { return format_bytes(all.floor); }));
  add(table, "`floor` of `codec = \"auto\"`", {"4KiB", [] { return format_bytes(Policy::automatic().floor); }});
  add(table, "`deterministic`", of_policy("off", [](const Policy& all) { return text(all.deterministic); }));
  add(table, "`strict`", of_policy("off", [](const Policy& all) { return text(all.strict); }));
  add(table, "`save_as`",
      of_policy("exact", [](const Policy& all) { return std::string(all.save_packed ? "exact+zstd" : "exact"); }));
  add(table, "`gain` of `[auto]`", of_policy("5%", [](const Policy& all) { return percent(all.auto_options.gain); }));
  add(table, "`dwell` of `[auto]`",
      of_policy("20 steps", [](const Policy& all) { return std::to_string(all.auto_options.dwell) + " steps"; }));
  add(table, "`window` of `[auto]`",
      of_policy("15 steps", [](const Policy& all) { return std::to_string(all.auto_options.window) + " steps"; }));
  add(table, "`cost` of `[auto]`",
      of_policy("0.05%", [](const Policy& all) { return percent(all.auto_options.cost); }));
}

void add_batch(DefaultTable& table) {
  const auto of_batch = [](std::string shown, const std::function<std::string(const Policy::Batch&)>& read) {
    return of_section<Policy::Batch>(std::move(shown), "[batch]", &Policy::batch, read);
  };
  add(table, "`[batch]`", of_policy("none", [](const Policy& all) { return given(all.batch, "none"); }));
  add(table, "`target_exposed` of `[batch]`",
      of_batch("10%", [](const Policy::Batch& batch) { return percent(batch.target_exposed); }));
  add(table, "`min_accumulation` of `[batch]`",
      of_batch("1", [](const Policy::Batch& batch) { return std::to_string(batch.min_accumulation); }));
  add(table, "`max_accumulation` of `[batch]`",
      of_batch("8", [](const Policy::Batch& batch) { return std::to_string(batch.max_accumulation); }));
  add(table, "`scaling` of `[batch]`", of_batch("linear", [](const Policy::Batch& batch) {
        return std::string(batch.scaling == BatchScaling::linear ? "linear" : "square_root");
      }));
}

void add_device(DefaultTable& table) {
  add(table, "`blocks` of `[device]`",
      of_policy("one a tile", [](const Policy& all) { return given(all.device.blocks, "one a tile"); }));
  add(table, "`priority` of `[device]`",
      of_policy("high", [](const Policy& all) { return std::string(all.device.high_priority ? "high" : "normal"); }));
  add(table, "`join` of `[device]`", of_policy("never", [](const Policy& all) {
        return all.device.join_bytes == 0 ? "never" : format_bytes(all.device.join_bytes);
      }));
  add(table, "`bind` of `[memory]`",
      of_policy("auto", [](const Policy& all) { return std::string(all.memory.bind ? "auto" : "off"); }));
  add(table, "`device_residuals` of `[memory]`",
      of_policy("2GiB", [](const Policy& all) { return format_bytes(all.memory.device_residuals); }));
}

void add_security(DefaultTable& table) {
  add(table, "`key` of `[security]`",
      of_policy("none", [](const Policy& all) { return all.security.key.empty() ? "none" : all.security.key; }));
  add(table, "`lock_memory` of `[security]`",
      of_policy("off", [](const Policy& all) { return std::string(all.security.lock_memory ? "on" : "off"); }));
}

void add_host_memory(DefaultTable& table) {
  using Memory = Policy::Memory;
  const auto of_memory = [](std::string shown, const std::function<std::string(const Memory&)>& read) {
    return of_policy(std::move(shown), [read](const Policy& all) { return read(all.memory); });
  };
  add(table, "`limit` of `[memory]`", of_memory("what the system leaves", [](const Memory& all) {
        return given(all.limit, "what the system leaves");
      }));
  add(table, "`huge_pages` of `[memory]`", of_memory("madvise", [](const Memory& all) {
        return std::string(all.huge_pages == Memory::HugePages::madvise ? "madvise" : "another");
      }));
  add(table, "`merge` of `[memory]`",
      of_memory("lazy", [](const Memory& all) { return std::string(all.merges_lazily ? "lazy" : "at_once"); }));
  add(table, "`trim_above` of `[memory]`",
      of_memory("64MiB", [](const Memory& all) { return format_bytes(all.trim_above); }));
  add(table, "`trim_after` of `[memory]`",
      of_memory("10s", [](const Memory& all) { return format_duration(all.trim_after); }));
  add(table, "`compact_free` of `[memory]`",
      of_memory("60%", [](const Memory& all) { return percent(all.compact_free); }));
  add(table, "`compact_failures` of `[memory]`",
      of_memory("3", [](const Memory& all) { return std::to_string(all.compact_failures); }));
  add(table, "`compact_every` of `[memory]`",
      of_memory("30s", [](const Memory& all) { return format_duration(all.compact_every); }));
}

void add_elastic(DefaultTable& table) {
  using Elastic = Policy::Elastic;
  const auto of_elastic = [](std::string shown, const std::function<std::string(const Elastic&)>& read) {
    return of_section<Elastic>(std::move(shown), "[elastic]", &Policy::elastic, read);
  };
  add(table, "`[elastic]`", of_policy("none", [](const Policy& all) { return given(all.elastic, "none"); }));
  add(table, "`suspect` of `[elastic]`",
      of_elastic("5s", [](const Elastic& elastic) { return format_duration(elastic.suspect); }));
  add(table, "`min_ranks` of `[elastic]`",
      of_elastic("1", [](const Elastic& elastic) { return std::to_string(elastic.min_ranks); }));
  add(table, "`replicate` of `[elastic]`",
      of_elastic("never", [](const Elastic& elastic) { return steps_text(elastic.replicate); }));
  add(table, "`replicate_exact` of `[elastic]`",
      of_elastic("off", [](const Elastic& elastic) { return text(elastic.replicate_exact); }));
  add(table, "`spares` of `[elastic]`",
      of_elastic("none", [](const Elastic& elastic) { return count_text(elastic.spares, "none"); }));
  add(table, "`expel_slower_than` of `[elastic]`",
      of_elastic("never", [](const Elastic& elastic) { return count_text(elastic.expel_slower_than, "never"); }));
  add(table, "`trust_resets` of `[elastic]`",
      of_elastic("off", [](const Elastic& elastic) { return text(elastic.trust_resets); }));
}

// Returns the options that a C struct of zeros stands for.
TableOptions in_c() {
  gradwire_table_options options{};
  options.struct_size = sizeof options;
  return api::table_options_of(&options, nullptr, "a table");
}

}  // namespace

DefaultTable policy_defaults() {
  DefaultTable table{.title = "Other keys of policies", .columns = {"policy files"}};
  add_keys_of_tensors(table);
  add_keys_of_a_job(table);
  add_batch(table);
  add_device(table);
  add_host_memory(table);
  add_security(table);
  add_elastic(table);
  return table;
}

DefaultTable table_defaults() {
  DefaultTable table{.title = "Embedding tables", .columns = {"C++", "C"}};
  const auto row = [&](const std::string& what, const std::string& shown,
                       const std::function<std::string(const TableOptions&)>& read) {
    table.rows.push_back(
        {what, {{shown, [read] { return read(TableOptions()); }}, {shown, [read] { return read(in_c()); }}}});
  };
  row("name", "table", [](const TableOptions& options) { return options.name; });
  row("rows and width", "must be given", [](const TableOptions& options) {
    return std::string(options.rows == 0 && options.width == 0 ? "must be given" : "given");
  });
  row("optimizer of rows", "sgd", [](const TableOptions& options) {
    return std::string(options.optimizer == RowOptimizer::sgd ? "sgd" : "adagrad");
  });
  row("learning rate", "0.01", [](const TableOptions& options) { return format_number(options.learning_rate, 6); });
  row("epsilon of adagrad", "1e-10", [](const TableOptions& options) { return format_number(options.epsilon, 6); });
  row("initial scale", "0", [](const TableOptions& options) { return format_number(options.initial_scale); });
  row("seed", "0", [](const TableOptions& options) { return std::to_string(options.seed); });
  row("codec of rows", "exact", [](const TableOptions& options) { return text(options.codec); });
  row("codec of gradients", "exact", [](const TableOptions& options) { return text(options.gradient_codec); });
  row("staleness", "0", [](const TableOptions& options) { return std::to_string(options.staleness); });
  row("own pushes seen at once", "on", [](const TableOptions& options) { return text(options.read_own_writes); });
  row("cache", "none", [](const TableOptions& options) { return count_text(options.cache_bytes, "none"); });
  row("store", "none", [](const TableOptions& options) { return options.store.empty() ? "none" : options.store; });
  row("memory beside a store", "must be given",
      [](const TableOptions& options) { return count_text(options.memory, "must be given"); });
  row("copies of a row", "by the session",
      [](const TableOptions& options) { return count_text(options.copies, "by the session"); });
  row("rows that other ranks answer, at most", "64",
      [](const TableOptions& options) { return count_text(options.relayed_rows, "none"); });
  row("memory for guesses", "none",
      [](const TableOptions& options) { return count_text(options.guess_bytes, "none"); });
  row("timeout of a wait", "5 min", [](const TableOptions& options) { return text(options.timeout); });
  row("threading", "background", [](const TableOptions& options) { return text(options.threading); });
  return table;
}

}  // namespace gradwire::test
