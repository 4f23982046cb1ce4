#include "cli/model_file.hpp"

#include <chrono>
#include <limits>

#include "base/read_file.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "policy/policy_values.hpp"

namespace gradwire::cli {
namespace {

constexpr std::size_t kMaxModelBytes = 16ULL << 20;
constexpr std::size_t kMaxLayers = 1'000'000;  // with all repeated ones
constexpr std::size_t kMaxNameBytes = 1024;    // each has its own
constexpr std::size_t kMaxNamesBytes = 64ULL << 20;
constexpr std::int64_t kMaxCount = 1LL << 48;

class Reader : private policy::PolicyValues {
 public:
  Reader(std::string_view text, const std::string& source)
      : policy::PolicyValues(source), text_(text), source_(source) {}

  ModelFile read() {
    check_text(text_, kMaxModelBytes, "a model");
    const toml::parse_result result = toml::parse(text_, source_);
    if (!result) {
      fail_toml(text_, result.error());
    }
    read_table(result.table(), "at the top of the file",
               {{"version", [this](const toml::node& node) { read_version(node); }},
                {"compute", [this](const toml::node& node) { model_.compute_seconds = read_seconds(node); }},
                {"backward", [this](const toml::node& node) { read_backward(node); }},
                {"layer", [this](const toml::node& node) { read_layers(node); }}});
    if (model_.compute_seconds <= 0) {
      fail(policy::SourceLocation{},
           R"(compute is missing; write how long a step computes on one rank, such as compute = "180ms")");
    }
    if (model_.layers.empty()) {
      fail(policy::SourceLocation{}, R"(there is no layer; write [[layer]] with name and shape for each gradient)");
    }
    return std::move(model_);
  }

 private:
  void read_version(const toml::node& node) const {
    if (node.value_or(std::int64_t{0}) != 1) {
      fail(node, "this build reads version 1 of the model format; write version = 1");
    }
  }

  double read_seconds(const toml::node& node) const {
    const std::string text = read_string(node, "compute", R"(a duration such as "180ms")");
    try {
      return std::chrono::duration<double>(parse_duration(text)).count();
    } catch (const Error& error) {
      fail(node, error.what());
    }
  }

  void read_backward(const toml::node& node) {
    const std::string text = read_string(node, "backward", R"(a share such as "66%")");
    try {
      model_.backward = parse_fraction(text);
    } catch (const Error& error) {
      fail(node, error.what());
    }
  }

  void read_layers(const toml::node& node) {
    if (!node.is_array_of_tables()) {
      fail(node, "layers are tables; write [[layer]], with two brackets, above each of them");
    }
    for (const toml::node& layer : *node.as_array()) {
      read_layer(*layer.as_table());
    }
  }

  void read_layer(const toml::table& table) {
    TensorInfo layer;
    std::int64_t repeat = 1;
    bool sized = false;
    const auto set_count = [&](const toml::node& node, std::uint64_t count, std::uint32_t ndim) {
      if (sized) {
        fail(node, "a layer has count or shape, not both");
      }
      layer.count = count;
      layer.ndim = ndim;
      sized = true;
    };
    read_table(table, "in a [[layer]]",
               {{"name", [&](const toml::node& n) { layer.name = read_name(n); }},
                {"dtype", [&](const toml::node& n) { layer.dtype = read_dtype(n); }},
                {"count", [&](const toml::node& n) { set_count(n, read_count(n, "count"), 1); }},
                {"shape",
                 [&](const toml::node& n) {
                   const std::uint64_t elements = read_shape(n);  // comes first: refuses an empty shape
                   set_count(n, elements, dimensions(n));
                 }},
                {"repeat", [&](const toml::node& n) {
                   repeat = read_integer(n, "repeat", "an integer such as 24", 1, 100000, "a number from 1 to 100000");
                 }}});
    if (!sized || layer.name.empty()) {
      fail(policy::place_of(table.source()),
           std::string("a layer needs ") + (sized ? "a name" : "shape = [rows, columns]"));
    }
    if (static_cast<std::size_t>(repeat) > kMaxLayers - model_.layers.size()) {
      fail(policy::place_of(table.source()),
           "with this [[layer]] the model has more than " + std::to_string(kMaxLayers) + " layers; is repeat wrong?");
    }
    name_bytes_ += static_cast<std::size_t>(repeat) * layer.name.size();
    if (name_bytes_ > kMaxNamesBytes) {
      fail(policy::place_of(table.source()), "with this [[layer]] the names have more than " +
                                                 format_bytes(kMaxNamesBytes) +
                                                 "; give a shorter name, or is repeat wrong?");
    }
    for (std::int64_t i = 0; i < repeat; ++i) {
      TensorInfo one = layer;
      if (const std::size_t hash = one.name.find('#'); hash != std::string::npos) {
        one.name.replace(hash, 1, std::to_string(i));
      } else if (repeat > 1) {
        one.name += "." + std::to_string(i);
      }
      model_.layers.push_back(std::move(one));
    }
  }

  std::string read_name(const toml::node& node) const {
    std::string name = read_string(node, "name", "a string");
    if (name.size() > kMaxNameBytes) {
      fail(node, "this name has " + std::to_string(name.size()) + " bytes; " + std::to_string(kMaxNameBytes) +
                     " are the most");
    }
    return name;
  }

  std::uint64_t read_count(const toml::node& node, std::string_view key) const {
    return static_cast<std::uint64_t>(
        read_integer(node, key, "an integer such as 1000000", 1, kMaxCount, "a number of elements from 1 on"));
  }

  static std::uint32_t dimensions(const toml::node& node) {
    return static_cast<std::uint32_t>(node.as_array()->size());
  }

  std::uint64_t read_shape(const toml::node& node) const {
    if (!node.is_array() || node.as_array()->empty()) {
      fail_type(node, "shape", "an array such as [1024, 4096]");
    }
    std::uint64_t count = 1;
    for (const toml::node& side : *node.as_array()) {
      const std::uint64_t length = read_count(side, "shape");
      if (count > static_cast<std::uint64_t>(kMaxCount) / length) {
        fail(side, "this shape has more elements than any tensor; is a side wrong?");
      }
      count *= length;
    }
    return count;
  }

  std::string_view text_;
  const std::string& source_;
  ModelFile model_;
  std::size_t name_bytes_ = 0;  // bytes of the names of all layers
};

}  // namespace

ModelFile ModelFile::load(const std::filesystem::path& file) {
  return parse(read_file(file, kMaxModelBytes, "model file", Pipes::read), file.string());
}

ModelFile ModelFile::parse(std::string_view text, const std::string& source) { return Reader(text, source).read(); }

}  // namespace gradwire::cli
