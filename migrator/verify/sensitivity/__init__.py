"""How strong the verification is: mutations are applied in a scratch copy, and the checks must see them."""
