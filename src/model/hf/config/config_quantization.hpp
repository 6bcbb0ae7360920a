// quantization_config: how a folder keeps weights that are no plain numbers.
#pragma once

#include "model/hf/family.hpp"
#include "moeloom/model/hf/checkpoint_names.hpp"

#include "hf/config/config_reader.hpp"

namespace moeloom {

/// `reader`: of the text model's object, or of one around it; where several say it, they must say the same.
void read_quantization(ConfigReader& reader, const Family& family, StoredForm& form);

}  // namespace moeloom
