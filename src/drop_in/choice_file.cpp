#include "drop_in/choice_file.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/durable_file.hpp"
#include "gradwire/error.hpp"

namespace gradwire::drop_in {
namespace {

using nlohmann::json;

constexpr int kChoicesVersion = 1;

template <typename T>
T number(const json& object, const char* key, std::uint64_t most = std::numeric_limits<T>::max()) {
  const json& value = object.at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
    throw Error(ErrorCode::invalid_argument,
                std::string(key) + " must be a whole number up to " + std::to_string(most));
  }
  return static_cast<T>(value.get<std::uint64_t>());
}

json to_json(const ChoiceClass& what, const std::vector<WayChange>& changes) {
  json rows = json::array();
  for (const WayChange& change : changes) {
    rows.push_back({change.call, change.way});
  }
  return {{"function", name_of(what.function)},
          {"dtype", to_string(what.dtype)},
          {"rule", what.rule},
          {"size", what.size},
          {"ways", std::move(rows)}};
}

Function function_of(const std::string& name) {
  for (int i = 0; i < static_cast<int>(Function::other); ++i) {
    if (name_of(Function{static_cast<std::uint8_t>(i)}) == name) {
      return Function{static_cast<std::uint8_t>(i)};
    }
  }
  throw Error(ErrorCode::invalid_argument, "\"" + name + "\" is no function that is compressed");
}

DType dtype_of(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    if (to_string(dtype) == name) {
      return dtype;
    }
  }
  throw Error(ErrorCode::invalid_argument, "\"" + name + "\" is no dtype");
}

void read_class(const json& object, Choices& choices) {
  constexpr std::uint64_t kMostSize = 63;
  const ChoiceClass what{.function = function_of(object.at("function").get<std::string>()),
                         .dtype = dtype_of(object.at("dtype").get<std::string>()),
                         .rule = number<std::uint32_t>(object, "rule"),
                         .size = number<std::uint8_t>(object, "size", kMostSize)};
  std::vector<WayChange>& changes = choices[what];
  for (const json& row : object.at("ways")) {
    const json named{{"call", row.at(0)}, {"way", row.at(1)}};
    changes.push_back({number<std::uint64_t>(named, "call"), number<Way>(named, "way")});
    if (changes.size() > 1 && changes.back().call <= changes[changes.size() - 2].call) {
      throw Error(ErrorCode::invalid_argument, "the calls of a class must rise");
    }
  }
}

}  // namespace

std::string choices_to_text(const ChoicesOfJob& choices, const std::string& policy) {
  json communicators = json::array();
  for (const auto& [name, classes] : choices) {
    json rows = json::array();
    for (const auto& [what, changes] : classes) {
      rows.push_back(to_json(what, changes));
    }
    communicators.push_back({{"ranks", name.ranks},
                             {"size", name.size},
                             {"first", name.first},
                             {"number", name.number},
                             {"classes", std::move(rows)}});
  }
  return json{{"gradwire_choices", kChoicesVersion}, {"policy", policy}, {"communicators", std::move(communicators)}}
             .dump(1) +
         "\n";
}

std::string write_choices(const std::filesystem::path& file, const std::string& text) {
  try {
    DurableFile(file.parent_path(), file.filename().string(), [&](std::ostream& stream) { stream << text; }).commit();
    return {};
  } catch (const Error& error) {
    return "GRADWIRE_CHOICES: " + std::string(error.what());
  }
}

ChoicesOfJob choices_from_text(const std::string& text, const std::string& policy) {
  try {
    const json file = json::parse(text);
    if (number<int>(file, "gradwire_choices") != kChoicesVersion) {
      throw Error(ErrorCode::invalid_argument, "it is of another version");
    }
    if (file.at("policy").get<std::string>() != policy) {
      throw Error(ErrorCode::invalid_argument, "it was recorded under another policy");
    }
    ChoicesOfJob choices;
    for (const json& one : file.at("communicators")) {
      Choices& classes = choices[{.ranks = number<std::uint64_t>(one, "ranks"),
                                  .size = number<std::uint32_t>(one, "size"),
                                  .first = number<std::uint32_t>(one, "first"),
                                  .number = number<std::uint32_t>(one, "number")}];
      for (const json& row : one.at("classes")) {
        read_class(row, classes);
      }
    }
    return choices;
  } catch (const json::exception& error) {
    throw Error(ErrorCode::invalid_argument, std::string("it is no file of choices (") + error.what() + ")");
  }
}

}  // namespace gradwire::drop_in
