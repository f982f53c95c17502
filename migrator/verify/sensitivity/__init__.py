"""How strong the verification is: corruptions are planted in a scratch copy, and the checks must see them."""
