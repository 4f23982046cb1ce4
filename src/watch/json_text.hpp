// A small JSON writer for code that is part of preloads and links no library.
#pragma once

#include <string>
#include <string_view>

namespace gradwire::watch {

/// Appends JSON to a text in the order of the calls.
class JsonText {
 public:
  /// `{"a": 1, "b": [2, 3]}` is
  /// open('{').key("a").number(1).key("b").open('[').number(2).number(3).close(']').close('}')
  JsonText& open(char bracket);
  JsonText& close(char bracket);
  JsonText& key(std::string_view name);
  JsonText& string(std::string_view value);
  /// The shortest text that reads back; null for a number that is not finite.
  JsonText& number(double value);
  JsonText& boolean(bool value);
  JsonText& null();
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  void separate();

  std::string text_;
  bool first_ = true;  // no comma is needed: nothing stands before in this bracket, or a key does
};

}  // namespace gradwire::watch
