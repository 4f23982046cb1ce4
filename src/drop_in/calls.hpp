// The names from `choice` by which drop-ins describe calls. No other module takes them over.
#pragma once

#include "choice/auto_call.hpp"
#include "choice/decision.hpp"

namespace gradwire::drop_in {

using choice::AutoCall;
using choice::Call;
using choice::CallDecision;
using choice::ChoiceClass;
using choice::Choices;
using choice::Function;
using choice::kMostCopied;
using choice::kReasons;
using choice::Reason;
using choice::Settings;
using choice::size_class;
using choice::text;
using choice::Way;
using choice::WayChange;

}  // namespace gradwire::drop_in
