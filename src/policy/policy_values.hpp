// Reads single values of a policy file: each function checks the type and range of one TOML node, and its errors name
// file, line and column. policy_reader.cpp checks what the values mean together.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"
#include "policy/toml.hpp"

namespace gradwire::policy {

struct SourceLocation {
  int line = 1;
  int column = 1;
};

[[nodiscard]] SourceLocation place_of(const toml::source_region& region);

class PolicyValues {
 public:
  using Handler = std::function<void(const toml::node& value)>;
  using Handlers = std::vector<std::pair<std::string_view, Handler>>;

  /// `source` stands for the file name in messages and must outlive this.
  explicit PolicyValues(const std::string& source) : source_(source) {}

  [[noreturn]] void fail(SourceLocation place, const std::string& what,
                         ErrorCode code = ErrorCode::invalid_argument) const;
  [[noreturn]] void fail(const toml::node& node, const std::string& what) const;
  [[noreturn]] void fail_type(const toml::node& node, std::string_view key, std::string_view wanted) const;

  /// Throws the error of a text that is not TOML.
  [[noreturn]] void fail_toml(std::string_view text, const toml::parse_error& error) const;

  /// Refuses a text that is too long, or nests so deeply that the TOML library's recursion would end the program.
  /// `what` is "a policy".
  void check_text(std::string_view text, std::uint64_t max_bytes, std::string_view what) const;

  /// Calls the handler of each key, in the order of the file, so that the first mistake is the one reported.
  void read_table(const toml::table& table, std::string_view where, const Handlers& handlers) const;

  [[nodiscard]] std::string read_string(const toml::node& node, std::string_view key, std::string_view wanted) const;
  /// Returns the place of the value among `words`. Fails for another value, with the words to write.
  [[nodiscard]] std::size_t read_choice(const toml::node& node, std::string_view key,
                                        std::initializer_list<std::string_view> words) const;
  [[nodiscard]] bool read_bool(const toml::node& node, std::string_view key) const;
  /// Reads an integer from low to high, both inclusive; `range` says in words what to write.
  [[nodiscard]] std::int64_t read_integer(const toml::node& node, std::string_view key, std::string_view wanted,
                                          std::int64_t low, std::int64_t high, std::string_view range) const;
  [[nodiscard]] std::uint32_t read_uint32(const toml::node& node, std::string_view key, std::string_view wanted,
                                          std::uint32_t low, std::uint32_t high, std::string_view range) const {
    return static_cast<std::uint32_t>(read_integer(node, key, wanted, low, high, range));
  }
  [[nodiscard]] std::uint64_t read_bytes(const toml::node& node, std::string_view key, std::uint64_t low = 0,
                                         std::uint64_t high = std::numeric_limits<std::int64_t>::max()) const;
  /// Reads a share such as "5%" or 0.05, from 0 to below 1.
  [[nodiscard]] double read_share(const toml::node& node, std::string_view key, std::string_view example) const;
  [[nodiscard]] CodecSpec read_codec(const toml::node& node, std::string_view key) const;
  /// The codecs that "auto" may choose.
  [[nodiscard]] std::vector<CodecSpec> read_allow(const toml::node& node) const;
  [[nodiscard]] std::vector<Warmup> read_warmup(const toml::node& node) const;
  [[nodiscard]] Algorithm read_algorithm(const toml::node& node) const;
  [[nodiscard]] ErrorFeedback read_error_feedback(const toml::node& node) const;
  [[nodiscard]] Roles read_roles(const toml::node& node) const;
  [[nodiscard]] double read_decay(const toml::node& node) const;
  [[nodiscard]] double read_max_error(const toml::node& node) const;
  [[nodiscard]] double read_expel_slower_than(const toml::node& node) const;
  [[nodiscard]] Sync read_sync(const toml::node& node) const;
  [[nodiscard]] Sync::Outer read_outer(const toml::node& node) const;
  [[nodiscard]] std::string read_glob(const toml::node& node) const;
  [[nodiscard]] std::string read_glob(const toml::node& node, std::string_view key, std::string_view wanted) const;
  [[nodiscard]] DType read_dtype(const toml::node& node) const;
  /// Reads 3, or the first and last number of a range: [0, 7].
  [[nodiscard]] OrderRange read_order(const toml::node& node) const;
  /// Reads the values of [batch].
  [[nodiscard]] std::uint32_t read_replicate(const toml::node& node) const;
  [[nodiscard]] Policy::Elastic read_elastic(const toml::table& table) const;
  [[nodiscard]] Policy::Batch read_batch(const toml::table& table) const;
  [[nodiscard]] Policy::Device read_device(const toml::table& table) const;
  [[nodiscard]] Policy::Memory read_memory(const toml::table& table) const;
  [[nodiscard]] Policy::Security read_job_security(const toml::table& table) const;

  // Runs a parser of a lower layer, and adds this place to its error.
  template <typename Parse>
  auto read_parsed(const toml::node& node, const Parse& parse) const {
    try {
      return parse();
    } catch (const Error& error) {
      fail(place_of(node.source()), error.what(), error.code());
    }
  }

 private:
  const std::string& source_;
};

}  // namespace gradwire::policy
